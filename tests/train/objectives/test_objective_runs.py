"""Objectives in runs: each with the models that it suits, the same rows whoever makes them."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import from_dict, to_dict
from tests.train.data.feed_settings import MODEL, PLAIN
from train.config import TrainConfig
from train.loop.pretrain import pretrain
from train.loop.start import with_model_defaults
from train.model.config import Encoder, Head, ModelConfig
from train.objective_settings import (
    Auto,
    Bart,
    Causal,
    Continuation,
    FillInTheMiddle,
    Masked,
    Prefix,
    Spans,
    Ul2,
)
from train.objectives.example import examples
from train.objectives.objectives import feed_of, objective, objective_for

APART = replace(MODEL, encoder=Encoder(layers=1))
ENCODER = replace(MODEL, causal=False)


def rows_of(shard_folder, model: ModelConfig, asked, context: int = 48):
    settings = TrainConfig(context=context, rows=2, objective=asked, device="cpu")
    settings = with_model_defaults(model, settings)
    feed = feed_of(shard_folder, settings)
    return objective(settings, feed.vocabulary), feed.rows


CASES = [
    (MODEL, Spans()),
    (MODEL, Spans(form="causal")),
    (MODEL, Ul2()),
    (MODEL, FillInTheMiddle()),
    (APART, Spans()),
    (APART, Bart()),
    (APART, Ul2()),
    (APART, Continuation()),
]


@pytest.mark.lab
@pytest.mark.parametrize(("model", "asked"), CASES)
def test_rows_are_the_same_whichever_process_makes_them(shard_folder, model, asked):
    made, rows = rows_of(shard_folder, model, asked)
    numbered = [(row, epoch) for epoch in range(2) for row in range(rows.count)]
    whole = examples(made, rows, numbered, seed=3)
    for worker in range(3):
        part = examples(made, rows, numbered[worker::3], seed=3)
        for field in fields(part):
            ours, all_of = getattr(part, field.name), getattr(whole, field.name)
            if field.name != "scored" and ours is not None:
                assert torch.equal(ours, all_of[worker::3]), field.name


@pytest.mark.lab
@pytest.mark.parametrize(("model", "asked"), CASES)
def test_every_document_is_read_whole_in_an_epoch(shard_folder, model, asked):
    """Of each piece the source and the target have room, and each token is in one piece."""
    made, rows = rows_of(shard_folder, model, asked)
    seen = sum(len(piece.tokens) for row in range(rows.count) for piece in rows.pieces(row))
    assert seen == rows.tokens
    row = examples(made, rows, [(number, 0) for number in range(rows.count)])
    assert set(row.documents[row.documents >= 0].tolist()) == {
        piece.document for number in range(rows.count) for piece in rows.pieces(number)
    }
    if row.source is not None:
        assert row.source.shape == (rows.count, 48) and row.targets.shape[1] <= 48


@pytest.mark.lab
@pytest.mark.parametrize(("model", "asked"), [CASES[0], CASES[4]])
def test_a_run_learns(shard_folder, tmp_path, model, asked):
    torch.set_num_threads(1)
    plan = replace(PLAIN, objective=asked, steps=12, lr=0.01)
    model = replace(model, vocab=340)
    summary = pretrain(shard_folder, tmp_path / "out", model=model, train=plan)
    assert summary["last_loss"] < summary["first_loss"] and summary["bits_per_byte"] is None


@pytest.mark.parametrize("asked", [case[1] for case in CASES])
def test_its_settings_survive_json(asked):
    plan = TrainConfig(objective=asked)
    assert from_dict(TrainConfig, json.loads(json.dumps(to_dict(plan))), "file") == plan


@pytest.mark.lab
def test_an_objective_suits_a_model_or_is_refused_in_a_line():
    for model, own in ((MODEL, Causal()), (APART, Spans(form="encoder-decoder"))):
        assert objective_for(model, Auto()) == own
    assert objective_for(ENCODER, Auto()) == Masked()
    assert objective_for(MODEL, Spans()).form == "prefix"
    assert objective_for(MODEL, Spans(form="causal")).form == "causal"
    for model, asked, message in (
        (APART, Prefix(), "'prefix' for this model: choose one of auto, spans"),
        (ENCODER, Spans(), "'spans' for this model: choose one of auto, masked"),
        (APART, Spans(form="prefix"), "form 'prefix' .*: choose one of auto, encoder-decoder"),
        (MODEL, Spans(form="encoder-decoder"), "choose one of auto, prefix, causal"),
        (replace(ENCODER, head=Head(pair="order")), Causal(), "auto, masked, sentence-order"),
    ):
        with pytest.raises(LlmcurateError, match=message):
            objective_for(model, asked)
