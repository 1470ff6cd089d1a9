"""Two processes train experts as one does."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.settings import change
from tests.train.loop.experts_settings import MODEL, TRAIN
from tests.train.loop.processes import lines, together, train_together
from tests.train.loop.split_models import experts
from tests.train.model.variants import LATENT
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.model.config import ModelConfig
from train.runs.checkpoint import complete, weights_of

pytestmark = pytest.mark.lab

CASES: dict[str, tuple[dict, dict]] = {
    "ddp": ({"feed_forward.shared_width": 12, "attention": LATENT}, {"accumulate": 2}),
    "fsdp": (
        {"feed_forward.bias_rate": 0.01, "feed_forward.noisy": True, "layers": 3}
        | {"feed_forward.first_dense": 1},
        {"parallel": "fsdp", "optimizer": "muon", "ema": 0.9},
    ),
    "fsdp, later tokens": (
        {"feed_forward.bias_rate": 0.01, "head.mtp": 1, "attention": LATENT},
        {"parallel": "fsdp"},
    ),
    "experts shared out": (
        {"feed_forward.bias_rate": 0.01, "feed_forward.shared_width": 12, "head.mtp": 1},
        {"parallel": "fsdp", "expert_parallel": True, "optimizer": "muon", "ema": 0.9}
        | {"accumulate": 2},
    ),
    "experts shared out, bf16": (
        {"feed_forward.capacity": 0.75, "feed_forward.random_second": True},
        {"parallel": "fsdp", "expert_parallel": True, "precision": "bf16", "recompute": True},
    ),
    "offload": ({"feed_forward.bias_rate": 0.01}, {"parallel": "fsdp", "offload": True}),
    "replicas": ({"feed_forward.bias_rate": 0.01}, {"parallel": "fsdp", "replicas": 2}),
    "fsdp, bf16": ({}, {"parallel": "fsdp", "precision": "bf16", "recompute": True}),
}


def case(name: str) -> tuple[ModelConfig, TrainConfig]:
    model, train = CASES[name]
    return change(MODEL, model, "model"), dataclasses.replace(TRAIN, log_every=1, **train)


@pytest.fixture(scope="module")
def folders(shard_folder, tmp_path_factory):
    torch.set_num_threads(1)
    base = tmp_path_factory.mktemp("experts")
    runs = []
    for name in CASES:
        model, train = case(name)
        alone = dataclasses.replace(train, replicas=1)
        pretrain(shard_folder, base / "one" / name, model=model, train=alone)
        runs.append((shard_folder, base / "two" / name, model, train))
    train_together(2, runs)
    return base


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_losses_loads_and_weights_of_one(folders, name):
    ours, theirs = lines(folders / "two" / name), lines(folders / "one" / name)
    bound = 2e-3 if "bf16" in name else 1e-4
    for a, b in zip(ours, theirs, strict=True):
        for term in ("loss", "balance", "router_z"):
            assert a[term] == pytest.approx(b[term], abs=bound, rel=10 * bound), (a["step"], term)
        assert ("loads" in a) == ("loads" in b)
        for x, y in zip(a.get("loads", ()), b.get("loads", ()), strict=True):
            assert x == pytest.approx(y, abs=0.02)
    if "bf16" in name:
        return
    last = [complete(folders / kind / name / "checkpoints")[-1] for kind in ("two", "one")]
    own, other = (dict(weights_of(path)) for path in last)
    assert own.keys() == other.keys()
    for weight, value in other.items():
        assert float((own[weight] - value).abs().max()) <= 2e-3, weight
        if weight.endswith("router.bias"):
            assert torch.equal(own[weight], value) and value.any()


@pytest.mark.slow
def test_routers_stay_in_float32_where_blocks_are_gathered_in_bfloat16():
    seen = together(2, experts, MODEL, False)
    assert seen == {"router": "torch.float32", "up": "torch.bfloat16", "here": 4}


@pytest.mark.slow
def test_with_expert_parallel_a_process_computes_with_its_experts_alone():
    assert together(2, experts, MODEL, True)["here"] == 2
