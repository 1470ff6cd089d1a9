"""Our processes do not load pandas until code other than Arrow imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.curate.command_line import environment

# What a module of ours does, then what somebody else does.
OURS = """
import sys
from llmcurate.base.start import late_pandas
late_pandas()
ours = "import pyarrow as pa; pa.array([1, 2]).to_numpy()"
exec(ours, {"__name__": "curate.filters.made_up"})
assert "pandas" not in sys.modules
import pyarrow as pa
"""
SERIES = "pa.array(pandas.Series([1.0, float('nan')])).null_count == 1"  # as of pandas alone


@pytest.mark.parametrize(
    "others",
    [
        f"import pandas; assert {SERIES}",
        f"import importlib; pandas = importlib.import_module('pandas'); assert {SERIES}",
        f"assert pa.table({{'a': [1]}}).to_pandas().size == 1; import pandas; assert {SERIES}",
        f"assert pa.array([1]).to_pandas().size == 1; import pandas; assert {SERIES}",
        "import importlib.util as u; assert u.find_spec('pandas'); assert u.find_spec('pandas')",
    ],
)
def test_pandas_can_still_be_imported(others):
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", f"{OURS}\n{others}"]
    subprocess.run(command, env=environment(), timeout=60, check=True)


def test_neither_the_command_nor_its_worker_loads_what_a_small_run_does_not_need(
    bench, make_pages, monkeypatch
):
    bench.jsonl("in.jsonl", make_pages(5))
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    run = bench.process("filter", "c4", "in.jsonl", "-o", "out")
    assert run.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert {"typer", "numba"} <= loaded  # of the command, and of its worker
    unneeded = {"pandas._libs", "scipy.linalg", "matplotlib", "torch", "ray"}
    assert loaded & unneeded == set()
