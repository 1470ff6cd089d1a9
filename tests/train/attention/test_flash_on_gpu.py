"""The kernels compile for GPUs as the operator calls them. No GPU is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "attention_compile.py"


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["90", "80"], ids=["hopper", "ampere"])
def test_kernels_compile_with_every_mask_and_fit(gpu):
    command = [sys.executable, str(SCRIPT), "--gpu", gpu, "--head-dim", "96", "--masks", "all"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kernels compiled, 0 of them wrong" in done.stdout
