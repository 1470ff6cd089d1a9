"""A run without enough memory ends with a line that says what fits."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from llmcurate.base.errors import RunFailed
from tests.train.data.feed_settings import TWO_LAYERS
from train.config import TrainConfig
from train.loop import memory
from train.loop.memory import SAFE, naming_memory, step_memory
from train.loop.pretrain import pretrain
from train.loop.training_step import Stepper
from train.runs.plan import Plan

TRAIN = TrainConfig(steps=2, rows=8, context=32, device="cpu")
PLAN = Plan(model=TWO_LAYERS, train=TRAIN, shards="")


def exhausted() -> RuntimeError:
    """The error of PyTorch itself, for more memory than any machine has."""
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 50)
    return raised.value


def peak(accumulate: int) -> int:
    return step_memory(replace(PLAN, train=replace(TRAIN, accumulate=accumulate)), "cpu", 1).peak


@pytest.mark.parametrize("most", [2, 4, 8])
def test_the_line_names_the_largest_part_of_the_rows_that_fits(most, monkeypatch):
    room = int(peak(most) / SAFE) + 64
    monkeypatch.setattr(memory, "host", lambda: SimpleNamespace(memory=room))
    line = rf"8 x 32 tokens at once: --set accumulate={most} .* {8 // most} rows? at once"
    with pytest.raises(RunFailed, match=line), naming_memory(PLAN, torch.device("cpu"), 1):
        raise exhausted()


def test_where_a_single_row_does_not_fit_a_smaller_model_is_advised(monkeypatch):
    monkeypatch.setattr(memory, "host", lambda: SimpleNamespace(memory=1000))
    with (
        pytest.raises(RunFailed, match="smaller parts do not fit: set recompute"),
        naming_memory(PLAN, torch.device("cpu"), 1),
    ):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")


def test_other_errors_keep_their_message():
    with pytest.raises(RuntimeError, match="shapes"), naming_memory(PLAN, torch.device("cpu"), 1):
        raise RuntimeError("shapes differ")


def test_the_command_that_the_line_names_goes_on_with_the_run(shard_folder, tmp_path, monkeypatch):
    room = int(peak(2) / SAFE) + 64
    monkeypatch.setattr(memory, "host", lambda: SimpleNamespace(memory=room))
    step = Stepper.step

    def limited(self, *given):
        if self.config.accumulate < 2:
            raise exhausted()
        return step(self, *given)

    monkeypatch.setattr(Stepper, "step", limited)
    with pytest.raises(RunFailed, match="--set accumulate=") as raised:
        pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=TRAIN)
    named = re.search(r"accumulate=(\d+)", str(raised.value))
    settings = replace(TRAIN, accumulate=int(named[1]))
    assert pretrain(shard_folder, tmp_path / "out", model=TWO_LAYERS, train=settings)["steps"] == 2
