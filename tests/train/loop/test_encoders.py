"""Encoders are trained like decoders: the loss falls, and a resume changes no bit."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.tokenizer_file import load_tokenizer
from tests.parameters import few
from tests.train.data.feed_settings import MODEL
from tests.train.loop.small_encoders import MODELS, TRAIN, small
from train.data.shards import read_shards
from train.evaluate.judge import open_model as load_judged
from train.loop.pretrain import pretrain
from train.objective_settings import Causal, Chat, Masked
from train.runs.checkpoint import newest, weights_of

# RoBERTa and ALBERT are BERT with other settings.
QUICK = ("bert-tiny", "deberta-tiny", "electra-tiny", "modernbert-tiny")


@pytest.mark.lab
@pytest.mark.parametrize("name", few(MODELS, *QUICK))
def test_the_loss_falls_and_a_resume_changes_no_bit(name, shard_folder, tmp_path):
    config = small(name)
    whole = pretrain(shard_folder, tmp_path / "whole", model=config, train=TRAIN)
    assert whole["last_loss"] < whole["first_loss"]
    assert whole["bits_per_byte"] is None and whole["held_out_loss"] > 0  # of hidden tokens alone

    class Stop(Exception):
        pass

    def stop(line: dict) -> None:
        if line["step"] == 7:
            raise Stop

    with pytest.raises(Stop):
        pretrain(shard_folder, tmp_path / "parts", model=config, train=TRAIN, on_progress=stop)
    pretrain(shard_folder, tmp_path / "parts", model=config, train=TRAIN)
    first, second = (
        dict(weights_of(newest(tmp_path / run / "checkpoints")))  # type: ignore[arg-type]
        for run in ("whole", "parts")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.lab
def test_the_mask_token_has_the_first_id_after_the_vocabulary_of_the_shards(shard_folder, tmp_path):
    shards = read_shards(shard_folder)
    pretrain(shard_folder, tmp_path / "run", model=small("bert-tiny"), train=TRAIN)
    ids = load_tokenizer(tmp_path / "run/tokenizer.json").get_vocab(with_added_tokens=True)
    assert ids["[MASK]"] == shards.vocab_size and ids["[SEP]"] == shards.vocab_size + 1
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines[0]["pairs"] == pytest.approx(0.69, abs=0.3)
    # It goes on as a model of its own folder, whose tokenizer has more than the shards' has.
    more = dataclasses.replace(TRAIN, steps=2)
    pretrain(shard_folder, tmp_path / "more", model=str(tmp_path / "run"), train=more)


@pytest.mark.lab
def test_what_is_learned_beside_hidden_tokens_is_in_the_metrics_and_of_held_out_text(
    shard_folder, tmp_path
):
    for name, terms in (
        ("bert-tiny", {"pairs"}),
        ("electra-tiny", {"replaced", "replaced_accuracy", "replaced_share"}),
    ):
        pretrain(shard_folder, tmp_path / name, model=small(name), train=TRAIN)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        assert terms == set(last["held_out"]["terms"]) and terms < set(last)
    assert last["held_out"]["terms"]["replaced_share"] == pytest.approx(0.15, abs=0.05)


@pytest.mark.lab
def test_what_an_encoder_cannot_do_is_a_one_line_error(shard_folder, tmp_path):
    for changes, message in (
        ({"objective": Causal()}, "'causal' for this model: choose one of auto, masked"),
        ({"objective": Chat()}, "'chat' for this model: choose one of .* [(]it needs a decoder[)]"),
        ({"eval": {"own": str(shard_folder)}}, "an encoder assigns no likelihood to a text"),
    ):
        settings = dataclasses.replace(TRAIN, **changes)
        with pytest.raises(LlmcurateError, match=message):
            pretrain(shard_folder, tmp_path / "run", model=small("roberta-tiny"), train=settings)
    with pytest.raises(LlmcurateError, match="'masked' for this model: choose one of auto, causal"):
        settings = dataclasses.replace(TRAIN, objective=Masked())
        pretrain(shard_folder, tmp_path / "run", model=MODEL, train=settings)
    pretrain(shard_folder, tmp_path / "run", model=small("roberta-tiny"), train=TRAIN)
    with pytest.raises(LlmcurateError, match="an encoder assigns no likelihood to a text"):
        load_judged(tmp_path / "run")
