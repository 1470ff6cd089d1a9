"""Two processes train a generator and its discriminator as one does."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from tests.train.loop.test_distributed import lines, torchrun
from tests.train.loop.test_encoders import TRAIN, small
from train.errors import TrainError
from train.loop.distributed import check_split
from train.loop.pretrain import pretrain
from train.settings import change

CODE = """
import json, pathlib, sys
import torch
import torch.distributed as dist
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.model.older import model_config
from train.settings import from_dict
torch.set_num_threads(1)
dist.init_process_group("gloo")
for out, (model, plan) in json.loads(sys.argv[2]).items():
    pretrain(
        pathlib.Path(sys.argv[1]), pathlib.Path(out),
        model=model_config(model, "plan"), train=from_dict(TrainConfig, plan, "plan"),
    )
dist.destroy_process_group()
"""
DISTANCES = {"position": "disentangled", "position.span": 8, "position.norm": True}
CASES: dict[str, tuple[dict, dict]] = {
    "ddp": ({}, {"accumulate": 2}),
    "fsdp": ({}, {"parallel": "fsdp", "recompute": True}),
    "fsdp, disentangled": (DISTANCES, {"parallel": "fsdp", "recompute": True}),
    "fsdp, bf16": (DISTANCES, {"parallel": "fsdp", "precision": "bf16"}),
}


@pytest.fixture(scope="module")
def folders(shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    base, plans = tmp_path_factory.mktemp("replaced"), {}
    for name, (of_model, changes) in CASES.items():
        model = change(small("electra-tiny"), of_model, "model")
        train = dataclasses.replace(TRAIN, log_every=1, **changes)
        pretrain(shard_folder, base / "one" / name, model=model, train=train)
        plans[str(base / "two" / name)] = dataclasses.asdict(model), dataclasses.asdict(train)
    script = base / "run.py"
    script.write_text(CODE)
    done = torchrun(str(script), str(shard_folder), json.dumps(plans))
    assert done.returncode == 0, done.stderr[-2000:]
    return base


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_losses_of_one(folders, name):
    ours, theirs = lines(folders / "two" / name), lines(folders / "one" / name)
    bound = 5e-2 if "bf16" in name else 1e-4
    for a, b in zip(ours, theirs, strict=True):
        for term in ("loss", "replaced", "replaced_accuracy", "replaced_share"):
            assert a[term] == pytest.approx(b[term], rel=bound), (a["step"], term)
    held = [each[-1]["held_out"]["terms"] for each in (ours, theirs)]
    assert held[0] == pytest.approx(held[1], rel=bound)


def test_what_processes_cannot_share_is_one_line():
    model = small("electra-tiny")
    for setting in ("tensor", "context_parallel"):
        with pytest.raises(TrainError, match=f"{setting} 2 with generator"):
            check_split(model, dataclasses.replace(TRAIN, context=32, **{setting: 2}))
