"""Processes that share the tokens of each row train what one trains."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.loop.distributed_settings import MODEL, TRAIN
from tests.train.loop.processes import lines, train_together
from train.config import Stage
from train.loop.distributed import parts_of
from train.loop.pretrain import pretrain
from train.objective_settings import Prefix

SHARED = dataclasses.replace(
    TRAIN, context_parallel=2, steps=6, eval_every=3, checkpoint_every=3, z_loss=1e-4
)
# Model and training: dropout, windows and sinks, grouped queries, packed documents that begin and
# end anywhere in chunks.
FIRST: dict[str, tuple[dict, dict]] = {
    "rotary, micro-batches": (
        {"attention.window": 9, "attention.window_pattern": "WF"},
        {"accumulate": 2, "packing": "best-fit"},
    ),
}
CASES: dict[str, tuple[dict, dict]] = {
    "alibi, window and sinks": (
        {"position": "alibi", "attention.window": 9, "attention.sinks": 2},
        {"parallel": "fsdp", "stages": (Stage(steps=3, context=16, rows=8), Stage(steps=3))},
    ),
    "t5, prefix, a teacher": (
        {"position": "t5", "attention.window": 7, "attention.window_pattern": "WF"},
        {"objective": Prefix(), "recompute": True, "teacher": "rotary, micro-batches"},
    ),
    "learned, bf16": (
        {"position": "learned", "attention.kv_heads": 1},
        {"parallel": "fsdp", "precision": "bf16", "recompute": 2},
    ),
}
FOUR: dict[str, tuple[dict, dict]] = {
    "ddp": ({}, {}),
    "fsdp": ({"position": "alibi"}, {"parallel": "fsdp", "ema": 0.9}),
    "hsdp": ({}, {"parallel": "fsdp", "replicas": 2, "rows": 2}),
    "and matrices": ({"position": "t5"}, {"parallel": "fsdp", "tensor": 2}),
    "four share a row": ({"attention.window": 9}, {"context_parallel": 4, "packing": "best-fit"}),
}


def trained(count, shards, base, cases):
    """Each case trained by one process, then by ``count``."""
    torch.set_num_threads(1)
    plans = {}
    for name, (model, train) in cases.items():
        plan = dataclasses.replace(SHARED, **train)
        if plan.teacher:
            plan = dataclasses.replace(plan, teacher=str(base / "one" / plan.teacher))
        plans[name] = change(MODEL, model, "model"), plan
        alone = dataclasses.replace(plan, context_parallel=1, replicas=1, tensor=1)
        pretrain(shards, base / "one" / name, model=plans[name][0], train=alone)
    train_together(count, [(shards, base / "many" / name, *run) for name, run in plans.items()])
    return base


def same(base, name, bound):
    ours, theirs = lines(base / "many" / name), lines(base / "one" / name)
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert a["tokens"] == b["tokens"]
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=10 * bound), a["step"]
        for term in {"loss", "z_loss", "distillation"} & b.keys():
            assert a[term] == pytest.approx(b[term], abs=bound), (term, a["step"])
        assert ("held_out" in a) == ("held_out" in b)
        if "held_out" in a:
            assert a["held_out"]["loss"] == pytest.approx(b["held_out"]["loss"], abs=bound)
            assert a["held_out"]["tokens"] == b["held_out"]["tokens"]


@pytest.fixture(scope="module")
def folder(shard_folder, tmp_path_factory):
    return trained(2, shard_folder, tmp_path_factory.mktemp("context"), FIRST)


def test_two_processes_that_share_rows_have_the_losses_of_one(folder):
    for name in FIRST:
        same(folder, name, 2e-5)


def test_a_run_continues_in_another_mesh(shard_folder, folder, tmp_path):
    """Three steps by two processes that share rows, the others by one that reads them whole."""
    ((name, (model, train)),) = FIRST.items()
    run = folder / "many" / name
    for path in (run / "checkpoints" / "step-0000006", run / "train.json"):
        path.rename(tmp_path / path.name)
    alone = dataclasses.replace(SHARED, **(train | {"context_parallel": 1, "accumulate": 1}))
    summary = pretrain(shard_folder, run, model=change(MODEL, model, "model"), train=alone)
    assert summary["timing"]["processes"] == 1
    same(folder, name, 2e-5)


@pytest.mark.slow
def test_two_processes_that_share_rows_have_the_losses_of_one_with_other_settings(
    shard_folder, tmp_path
):
    trained(2, shard_folder, tmp_path, FIRST | CASES)
    for name in CASES:
        same(tmp_path, name, 1e-3 if "bf16" in name else 2e-5)


@pytest.mark.slow
def test_four_processes_two_of_which_share_each_row_have_the_losses_of_one(shard_folder, tmp_path):
    base = trained(4, shard_folder, tmp_path, FOUR)
    for name in FOUR:
        same(base, name, 2e-5)


@pytest.mark.parametrize(
    ("changes", "count", "message"),
    [
        ({}, 3, "x context_parallel 2 on 3 processes: start a multiple of 2"),
        ({"context": 30}, 2, "context is 30: with context_parallel 2 choose a multiple of 4"),
        ({"rows": 2}, 8, "rows is 2: 4 processes of 1 micro-batches"),
    ],
)
def test_rows_that_processes_cannot_share_are_refused_and_so_is_compiling(changes, count, message):
    with pytest.raises(LlmcurateError, match=message):
        parts_of(dataclasses.replace(SHARED, **changes), count)
    with pytest.raises(LlmcurateError, match="context_parallel 2 with compile"):
        dataclasses.replace(SHARED, compile=True)
