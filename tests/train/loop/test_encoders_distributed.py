"""Two processes train encoders, and heads for tasks, as one does."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from tests.train.loop.test_distributed import lines, torchrun
from tests.train.loop.test_encoders import TRAIN, small
from tests.train.loop.test_tasks import animals, settings
from train.loop.pretrain import pretrain

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
for data, out, model, plan in json.loads(sys.argv[1]):
    pretrain(
        pathlib.Path(data), pathlib.Path(out),
        model=model_config(model, "plan"), train=from_dict(TrainConfig, plan, "plan"),
    )
dist.destroy_process_group()
"""
CASES = {
    "bert-tiny": {"recompute": True},
    "albert-tiny": {},
    "modernbert-tiny": {},
    "classify": {},
    "span": {"accumulate": 2},
}


@pytest.fixture(scope="module")
def folders(shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    base, plans = tmp_path_factory.mktemp("encoders"), []
    files = animals(base, 60)
    for name, changes in CASES.items():
        task = name in files
        train = settings(name, shard_folder) if task else TRAIN
        same = {"parallel": "fsdp", "log_every": 1, "steps": 4, "eval_every": 4}
        train = dataclasses.replace(train, **same, **changes)
        model, data = small("bert-tiny" if task else name), files.get(name, shard_folder)
        pretrain(data, base / "one" / name, model=model, train=train)
        as_json = [dataclasses.asdict(one) for one in (model, train)]
        plans.append((str(data), str(base / "two" / name), *as_json))
    script = base / "run.py"
    script.write_text(CODE)
    done = torchrun(str(script), json.dumps(plans))
    assert done.returncode == 0, done.stderr[-2000:]
    return base


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_losses_of_one(folders, name):
    ours, theirs = lines(folders / "two" / name), lines(folders / "one" / name)
    assert len(ours) == 4
    for a, b in zip(ours, theirs, strict=True):
        for term in {"loss", "pairs"} & set(b):
            assert a[term] == pytest.approx(b[term], rel=1e-4), (a["step"], term)
    held = [each[-1]["held_out"] for each in (ours, theirs)]
    assert held[0]["loss"] == pytest.approx(held[1]["loss"], rel=1e-4)
    assert held[0]["terms"] == pytest.approx(held[1]["terms"], rel=1e-4)
