from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from curate.cli.training import say_checkpoint
from llmcurate.base.errors import UsageError
from train.device import device_notices, keep_compiled, pick_device, same_bits


def test_deterministic_mode_is_set_only_on_a_gpu_and_only_while_requested(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # a user's own stays
    asked = torch.are_deterministic_algorithms_enabled
    for name, wanted, expected in (
        ("cpu", True, False),
        ("cuda", False, False),
        ("cuda", True, True),
    ):
        with same_bits(torch.device(name), wanted):
            assert asked() is expected
        assert not asked()


def test_deterministic_mode_is_restored_after_an_error():
    filled = torch.utils.deterministic.fill_uninitialized_memory
    try:
        with same_bits(torch.device("cuda"), True):
            raise KeyError
    except KeyError:
        pass
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory == filled


def test_what_torch_compiles_is_kept_in_our_cache_unless_the_user_chose_a_folder(
    monkeypatch, tmp_path
):
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/chosen")
    keep_compiled()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/chosen"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert Path(cache_dir()).parent == Path(tempfile.gettempdir())
    keep_compiled()
    assert Path(cache_dir()) == tmp_path / "torch"


def test_the_log_says_where_the_same_run_may_end_with_other_bits():
    (line,) = device_notices(torch.device("cuda"), deterministic=False)
    assert "deterministic=true" in line
    assert device_notices(torch.device("cuda"), deterministic=True) == []
    assert device_notices(torch.device("cpu"), deterministic=False) == []


def test_the_gpu_of_a_mac_is_refused_and_a_run_on_its_cpu_says_why(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto").type == "cpu"
    (line,) = device_notices(torch.device("cpu"), deterministic=True)
    assert "a Mac's GPU has no float64" in line
    with pytest.raises(UsageError, match=r"device 'mps': a Mac's GPU has no float64.*; use cpu"):
        pick_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device_notices(torch.device("cpu"), deterministic=True) == []


@pytest.mark.parametrize("mac", [True, False])
def test_commands_that_use_a_model_say_that_a_macs_gpu_is_idle(monkeypatch, tmp_path, capsys, mac):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mac)
    say_checkpoint(tmp_path, "best", device="auto")
    said = capsys.readouterr().err
    assert said.startswith("on the CPU: a Mac's GPU has no float64") if mac else not said


def test_a_model_without_memory_is_built_without_loading_the_compiler() -> None:
    code = """
import sys
from train.measure.accounting import parameters
from train.model.presets import preset
assert parameters(preset("tiny")) > 0
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
