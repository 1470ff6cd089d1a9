"""Two processes train a generator and its discriminator as one does."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.loop.processes import at_hand, lines, marked, train_together
from tests.train.loop.small_encoders import TRAIN, small
from train.loop.distributed import check_split
from train.loop.pretrain import pretrain

DISTANCES = {"position": "disentangled", "position.span": 8, "position.norm": True}
CASES: dict[str, tuple[dict, dict]] = {
    "ddp": ({}, {"accumulate": 2}),
    "fsdp": ({}, {"parallel": "fsdp", "recompute": True}),
    "fsdp, disentangled": (DISTANCES, {"parallel": "fsdp", "recompute": True}),
    "fsdp, bf16": (DISTANCES, {"parallel": "fsdp", "precision": "bf16"}),
}
SLOW = {"fsdp", "fsdp, bf16"}


@pytest.fixture(scope="module")
def folders(request, shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    base, runs = tmp_path_factory.mktemp("replaced"), []
    for name in at_hand(request, CASES, SLOW):
        of_model, changes = CASES[name]
        model = change(small("electra-tiny"), of_model, "model")
        train = dataclasses.replace(TRAIN, log_every=1, **changes)
        pretrain(shard_folder, base / "one" / name, model=model, train=train)
        runs.append((shard_folder, base / "two" / name, model, train))
    train_together(2, runs)
    return base


@pytest.mark.lab
@pytest.mark.parametrize("name", marked(CASES, SLOW))
def test_two_processes_have_the_losses_of_one(folders, name):
    ours, theirs = lines(folders / "two" / name), lines(folders / "one" / name)
    bound = 5e-2 if "bf16" in name else 1e-4
    for a, b in zip(ours, theirs, strict=True):
        for term in ("loss", "replaced", "replaced_accuracy", "replaced_share"):
            assert a[term] == pytest.approx(b[term], rel=bound), (a["step"], term)
    held = [each[-1]["held_out"]["terms"] for each in (ours, theirs)]
    assert held[0] == pytest.approx(held[1], rel=bound)


@pytest.mark.lab
def test_what_processes_cannot_share_is_a_one_line_error():
    model = small("electra-tiny")
    for setting in ("tensor", "context_parallel"):
        with pytest.raises(LlmcurateError, match=f"{setting} 2 with generator"):
            check_split(model, dataclasses.replace(TRAIN, context=32, **{setting: 2}))
