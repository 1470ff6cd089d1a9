"""Two processes train encoders, and heads for tasks, as one does."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.train.lab.tasks.animals import animals, settings
from tests.train.loop.processes import at_hand, lines, marked, train_together
from tests.train.loop.small_encoders import TRAIN, small
from train.loop.pretrain import pretrain

CASES = {
    "bert-tiny": {"recompute": True},
    "albert-tiny": {},
    "modernbert-tiny": {},
    "classify": {},
    "span": {"accumulate": 2},
}
SLOW = {"albert-tiny", "modernbert-tiny", "span"}


@pytest.fixture(scope="module")
def folders(request, shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    base, runs = tmp_path_factory.mktemp("encoders"), []
    files = animals(base, 60)
    for name in at_hand(request, CASES, SLOW):
        task = name in files
        train = settings(name, shard_folder) if task else TRAIN
        same = {"parallel": "fsdp", "log_every": 1, "steps": 4, "eval_every": 4}
        train = dataclasses.replace(train, **same, **CASES[name])
        model, data = small("bert-tiny" if task else name), files.get(name, shard_folder)
        pretrain(data, base / "one" / name, model=model, train=train)
        runs.append((data, base / "two" / name, model, train))
    train_together(2, runs)
    return base


@pytest.mark.parametrize("name", marked(CASES, SLOW))
def test_two_processes_have_the_losses_of_one(folders, name):
    ours, theirs = lines(folders / "two" / name), lines(folders / "one" / name)
    assert len(ours) == 4
    for a, b in zip(ours, theirs, strict=True):
        for term in {"loss", "pairs"} & set(b):
            assert a[term] == pytest.approx(b[term], rel=1e-4), (a["step"], term)
    held = [each[-1]["held_out"] for each in (ours, theirs)]
    assert held[0]["loss"] == pytest.approx(held[1]["loss"], rel=1e-4)
    assert held[0]["terms"] == pytest.approx(held[1]["terms"], rel=1e-4)
