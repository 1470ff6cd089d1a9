"""Runs of encoder-decoders: they learn, go on exactly, and two processes train what one does."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from tests.train.loop.processes import lines, train_together
from train.config import TrainConfig
from train.generate import GREEDY, complete, load
from train.loop.distributed import check_split
from train.loop.pretrain import pretrain
from train.model.attention_settings import Grouped
from train.model.config import Encoder, ModelConfig
from train.model.encodings.t5 import Buckets
from train.model.feed_forward_settings import Dense
from train.objective_settings import Bart, Masked, Spans

MODEL = ModelConfig(
    vocab=310,
    layers=2,
    hidden=32,
    context=32,
    dropout=0.1,
    attention=Grouped(heads=4, kv_heads=2, head_dim=8),
    feed_forward=Dense(width=64),
    position=Buckets(buckets=8, distance=16),
    encoder=Encoder(layers=3),
)
SHARED = dataclasses.replace(MODEL, encoder=Encoder(layers=2, shared=True, learns="bart"))
TRAIN = TrainConfig(steps=12, rows=4, context=32, warmup=3, schedule="constant", device="cpu")


@pytest.mark.lab
@pytest.mark.parametrize("model", [MODEL, SHARED], ids=["t5's", "bart's, shared"])
def test_a_run_learns_its_own_objective_and_continues_exactly(model, shard_folder, tmp_path):
    torch.set_num_threads(1)
    plan = dataclasses.replace(TRAIN, checkpoint_every=6, recompute=True)
    whole = pretrain(shard_folder, tmp_path / "whole", model=model, train=plan)
    half = dataclasses.replace(plan, steps=6)
    pretrain(shard_folder, tmp_path / "turns", model=model, train=half)
    turns = pretrain(shard_folder, tmp_path / "turns", model=model, train=plan)
    assert whole["last_loss"] == turns["last_loss"] < whole["first_loss"] - 0.5
    assert whole["held_out_loss"] == turns["held_out_loss"]
    assert whole["bits_per_byte"] is None
    kind = {"spans": Spans, "bart": Bart}[model.encoder.learns]
    assert whole["plan"]["train"]["objective"]["kind"] == kind.kind
    masks = [set(row["mask"]) for row in whole["attention"]]
    assert [("relative" in mask, "cross" in mask) for mask in masks] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    trained, tokenizer = load(tmp_path / "whole")
    wrote = complete(trained, tokenizer, ["the cat"], max_tokens=5, sampling=GREEDY, seed=0)
    assert wrote[0].tokens <= 5


@pytest.mark.slow  # small one: the test above, by one process
def test_two_processes_have_the_losses_of_one(shard_folder, tmp_path):
    torch.set_num_threads(1)
    plan = dataclasses.replace(TRAIN, steps=4)
    cases = {
        "ddp": (MODEL, {"parallel": "ddp"}),
        "fsdp": (SHARED, {"parallel": "fsdp"}),
        "tensor": (MODEL, {"tensor": 2, "recompute": True}),
    }
    runs = []
    for name, (model, settings) in cases.items():
        pretrain(shard_folder, tmp_path / f"one {name}", model=model, train=plan)
        shared = dataclasses.replace(plan, **settings)
        runs.append((shard_folder, tmp_path / name, model, shared))
    train_together(2, runs)
    for name in cases:
        for ours, theirs in zip(
            lines(tmp_path / name), lines(tmp_path / f"one {name}"), strict=True
        ):
            assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4), (name, ours["step"])
            assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3), name


@pytest.mark.lab
def test_what_an_encoder_decoder_does_not_do_is_refused_in_one_line(shard_folder, tmp_path):
    with pytest.raises(LlmcurateError, match=r"^context_parallel 2 with encoder: "):
        check_split(MODEL, dataclasses.replace(TRAIN, context_parallel=2))
    masked = dataclasses.replace(TRAIN, objective=Masked())
    with pytest.raises(
        LlmcurateError, match="objective 'masked' for this model: choose one of auto, "
    ):
        pretrain(shard_folder, tmp_path, model=MODEL, train=masked)
    texts = dataclasses.replace(TRAIN, eval={"texts": str(shard_folder)})
    with pytest.raises(
        LlmcurateError, match=r"^eval: an encoder-decoder assigns no likelihood to a text"
    ):
        pretrain(shard_folder, tmp_path, model=MODEL, train=texts)
