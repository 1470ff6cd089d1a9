"""Latent attention and modules that predict later tokens, over two processes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from tests.train.loop.processes import lines, train_together
from train.config import TrainConfig
from train.loop.distributed import check_split
from train.loop.pretrain import pretrain
from train.model.attention_settings import Grouped, Latent
from train.model.config import Head, ModelConfig
from train.model.feed_forward_settings import Dense

MODEL = ModelConfig(
    vocab=300,
    layers=2,
    hidden=32,
    context=32,
    dropout=0.1,
    attention=Latent(heads=4, query_rank=16, rank=12, rotary_dim=4, plain_dim=8, value_dim=6),
    feed_forward=Dense(width=64),
    head=Head(mtp=1),
)
TRAIN = TrainConfig(
    steps=8, rows=4, context=32, packing="best-fit", warmup=3, schedule="constant", device="cpu"
)
GROUPED = Grouped(heads=4, kv_heads=2, head_dim=8)


@pytest.mark.slow  # small one: the whole of tests/train/model/test_mtp.py, by one process
def test_two_processes_have_the_losses_of_one(shard_folder, tmp_path):
    torch.set_num_threads(1)
    pretrain(shard_folder, tmp_path / "one", model=MODEL, train=TRAIN)
    train_together(
        2,
        [
            (shard_folder, tmp_path / kind, MODEL, dataclasses.replace(TRAIN, parallel=kind))
            for kind in ("ddp", "fsdp")
        ],
    )
    alone = lines(tmp_path / "one")
    for kind in ("ddp", "fsdp"):
        for ours, theirs in zip(lines(tmp_path / kind), alone, strict=True):
            for name in ("loss", "mtp"):
                assert ours[name] == pytest.approx(theirs[name], abs=1e-4), (kind, ours["step"])


@pytest.mark.parametrize("setting", ["tensor", "context_parallel"])
@pytest.mark.parametrize("without", ["attention latent", "head.mtp 1"])
def test_settings_that_latent_attention_cannot_split_are_refused_in_one_line(setting, without):
    kept = {"head": Head()} if without == "attention latent" else {"attention": GROUPED}
    model = dataclasses.replace(MODEL, **kept)
    plan = dataclasses.replace(TRAIN, **{setting: 2})
    with pytest.raises(LlmcurateError, match=f"^{setting} 2 with {without}: ") as refused:
        check_split(model, plan)
    assert refused.value.exit_code == 2
