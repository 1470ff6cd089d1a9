"""Four processes in two dimensions train what one trains, whoever of them begins or goes on."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.settings import change
from tests.train.loop.distributed_settings import ALONE, MODEL, TRAIN
from tests.train.loop.processes import lines, train_together
from train.loop.pretrain import pretrain
from train.runs.checkpoint import complete, stored

pytestmark = pytest.mark.slow  # tests/train/loop/test_distributed.py has cases of two processes

HSDP = {"parallel": "fsdp", "replicas": 2}
TENSOR = {"parallel": "fsdp", "tensor": 2}
# Settings, other settings of the model, and who trains up to which step: four processes, or one.
RUNS = {
    "hsdp, then tensor, then one": ({}, {}, [(HSDP, 4), (TENSOR, 8), (ALONE, 10)]),
    "one, then tensor, then hsdp": (
        {"optimizer": "muon", "ema": 0.9, "async_checkpoints": True},
        {},
        [(ALONE, 2), (TENSOR, 6), (HSDP, 8)],
    ),
    "offload in both": (
        {"optimizer": "adafactor", "lr": 0.03, "accumulate": 2},
        {},
        [(TENSOR | {"offload": True}, 3), (HSDP | {"accumulate": 1, "offload": True}, 6)],
    ),
    "tensor alone": (
        {"recompute": 2},
        {"attention.kv_heads": 4, "position": "alibi", "residual.kind": "parallel"},
        [({"tensor": 4}, 6)],
    ),
    "biases, norms of heads and T5's positions": (
        {"optimizer": "lion", "lr": 3e-4, "recompute": True},
        {
            **{"attention.bias": "all", "feed_forward.bias": True, "attention.qk_norm": True},
            **{"position": "t5", "head.bias": True, "head.tied": False},
        },
        [(TENSOR, 6)],
    ),
    "bf16": ({"precision": "bf16"}, {}, [(TENSOR, 6)]),
}


@pytest.fixture(scope="module")
def folders(shard_folder, tmp_path_factory):
    """Each run by one process, and by those that take turns."""
    torch.set_num_threads(1)
    base = tmp_path_factory.mktemp("meshes")
    together = []
    for name, (settings, changes, turns) in RUNS.items():
        model, out = change(MODEL, changes, "model"), base / "many" / name
        whole = dataclasses.replace(TRAIN, **(settings | {"steps": turns[-1][1]}))
        pretrain(shard_folder, base / "one" / name, model=model, train=whole)
        for mesh, steps in turns:
            plan = dataclasses.replace(whole, steps=steps, **mesh)
            if mesh is not ALONE:
                together.append((shard_folder, out, model, plan))
            elif mesh is turns[0][0]:
                pretrain(shard_folder, out, model=model, train=plan)
    train_together(4, together)
    for name, (settings, changes, turns) in RUNS.items():
        if turns[-1][0] is ALONE:
            plan = dataclasses.replace(TRAIN, **(settings | {"steps": turns[-1][1]}))
            model = change(MODEL, changes, "model")
            pretrain(shard_folder, base / "many" / name, model=model, train=plan)
    return base


@pytest.mark.parametrize("name", RUNS)
def test_four_processes_in_any_grid_have_the_losses_of_one(folders, name):
    ours, theirs = lines(folders / "many" / name), lines(folders / "one" / name)
    bound = 2e-3 if name == "bf16" else 1e-5
    assert len(ours) == RUNS[name][2][-1][1]
    for a, b in zip(ours, theirs, strict=True):
        assert a["tokens"] == b["tokens"]
        assert a["loss"] == pytest.approx(b["loss"], abs=bound), a["step"]
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=10 * bound), a["step"]
    held_out = (line["held_out"]["loss"] for line in (ours[-1], theirs[-1]))
    assert next(held_out) == pytest.approx(next(held_out), abs=bound)


@pytest.mark.parametrize("name", RUNS)
def test_their_checkpoints_hold_each_weight_once_and_as_one_process_has_it(folders, name):
    own, other = (complete(folders / kind / name / "checkpoints")[-1] for kind in ("many", "one"))
    for kind in {path.stem for path in other.glob("*.safetensors")}:
        # Of parts it refuses those that are not the whole, or more than that.
        tensors, expected = stored(own, kind), stored(other, kind)
        assert tensors.shapes == expected.shapes
        if kind != "optimizer" and name != "bf16":
            for key, value in expected.items():
                torch.testing.assert_close(tensors[key], value, atol=1e-5, rtol=0, msg=key)


def test_blocks_that_are_compiled_one_by_one_drop_and_learn_what_others_do(shard_folder, tmp_path):
    plan = dataclasses.replace(TRAIN, steps=3)
    pretrain(shard_folder, tmp_path / "one", model=MODEL, train=plan)
    compiled = dataclasses.replace(plan, parallel="fsdp", compile=True)
    train_together(2, [(shard_folder, tmp_path / "two", MODEL, compiled)])
    ours, theirs = ([x["loss"] for x in lines(tmp_path / name)] for name in ("two", "one"))
    assert ours == pytest.approx(theirs, abs=1e-5)
