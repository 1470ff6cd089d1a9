"""Texts scored whole: as one pass over a document scores it, and as a plain loop over windows."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from llmcurate.base.errors import LlmcurateError
from tests.train.data.feed_settings import MODEL, PLAIN
from tests.train.loop.small_runs import build
from train.config import TrainConfig
from train.data.shards import read_shards
from train.loop.distributed import Ranks
from train.loop.evaluate import Scoring, Text
from train.loop.pretrain import pretrain

HERE = Ranks(device=torch.device("cpu"))
SMALL = TrainConfig(steps=4, rows=4, context=32, warmup=1, eval_every=2, checkpoint_every=4)


@pytest.fixture(scope="module")
def model():
    return build(replace(MODEL, layers=2, context=128))


def scored(model, shards, context, ranks=HERE):
    text = Text(shards, context)
    return text, text.nats(model, Scoring(ranks, 3, "fp32"))


def losses(model, before, tokens):
    """Nats of each token of one text, read in one pass."""
    inputs = torch.tensor([[before, *tokens[:-1]]])
    with torch.no_grad():
        logits = model.logits(model.features(inputs))[0]
    return F.cross_entropy(logits, torch.tensor(tokens), reduction="none").double().numpy()


def strided(model, end, tokens, context):
    """The same window by window: each begins half a context after the one before."""
    total, done, start = 0.0, 0, 0
    while done < len(tokens):
        stop = min(start + context, len(tokens))
        before = tokens[start - 1] if start else end
        total += losses(model, before, tokens[start:stop])[done - start :].sum()
        assert done == 0 or done - start >= context / 2
        start, done = start + context // 2, stop
    return total


def test_a_document_within_the_context_is_scored_as_in_one_pass(model, shard_folder):
    shards = read_shards(shard_folder)
    longest = int(shards.length.max())
    text, nats = scored(model, shards, longest)
    assert len(text.document) == shards.documents
    for number in range(shards.documents):
        whole = losses(model, shards.end, shards.document(number).tolist()).sum()
        assert nats[number] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("context", [8, 13, 1])
def test_a_longer_document_is_scored_by_windows_that_move_by_half(model, shard_folder, context):
    shards = read_shards(shard_folder)
    _, nats = scored(model, shards, context)
    for number in range(0, shards.documents, 7 if context > 1 else 20):
        tokens = shards.document(number).tolist()
        reference = (
            strided(model, shards.end, tokens, context)
            if context > 1
            else sum(
                losses(model, before, [token]).sum()
                for before, token in zip([shards.end, *tokens], tokens, strict=False)
            )
        )
        assert nats[number] == pytest.approx(reference, rel=1e-5)


def test_without_an_end_of_text_token_a_document_is_read_after_the_previous_one(
    model, shard_folder
):
    shards = replace(read_shards(shard_folder), end=None, begin=None, tokenizer=None)
    _, nats = scored(model, shards, 200)
    for number in (0, 1, 7):
        tokens = shards.document(number).tolist()
        before = int(shards.document(number - 1)[-1])
        assert nats[number] == pytest.approx(losses(model, before, tokens).sum(), rel=1e-5)


def test_each_token_of_a_text_is_scored_once(shard_folder):
    shards = read_shards(shard_folder)
    for context in (5, 8, 64):
        text = Text(shards, context)
        seen = [np.zeros(int(length), int) for length in shards.length]
        for row in range(text.rows.count):
            for piece in text.rows.pieces(row):
                part = slice(piece.first, piece.first + len(piece.tokens))
                seen[text.document[piece.document]][part] += piece.counted
        assert all((tokens == 1).all() for tokens in seen)


def test_bits_per_byte_are_the_nats_of_all_tokens_over_the_bytes_of_the_text(model, shard_folder):
    text, nats = scored(model, read_shards(shard_folder), 16)
    score = text.score(nats)
    assert score.bits_per_byte == pytest.approx(nats.sum() / math.log(2) / text.shards.bytes.sum())
    assert score.tokens == text.shards.length.sum()


def test_the_number_of_processes_changes_no_bit(model, shard_folder):
    class Apart(Ranks):
        def total(self, value):
            parts.append(value.clone())
            return value

    shards = read_shards(shard_folder)
    _, whole = scored(model, shards, 8)
    parts = []
    for rank in range(3):
        text, _ = scored(model, shards, 8, Apart(device=HERE.device, rank=rank, count=3))
    by_window = sum(parts).numpy()
    assert (np.stack(parts) != 0).sum(0).max() == 1
    assert (np.bincount(text.document, by_window) == whole).all()


def test_a_run_scores_its_texts_when_it_scores_held_out_text(shard_folder, tmp_path):
    settings = {**vars(SMALL), "eval": {"same": str(shard_folder)}}
    notices = []
    summary = pretrain(
        shard_folder, tmp_path, train=TrainConfig(**settings), on_notice=notices.append
    )
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [line["step"] for line in lines if "eval" in line] == [2, 4]
    assert summary["eval"] == lines[-1]["eval"]
    assert summary["eval"]["same"]["documents"] == 40
    assert any(line.startswith("eval same: 40 documents") for line in notices)


def test_other_texts_are_no_other_run_and_are_scored_when_it_has_ended(shard_folder, tmp_path):
    first = pretrain(shard_folder, tmp_path, train=SMALL)
    settings = {**vars(SMALL), "eval": {"same": str(shard_folder)}}
    second = pretrain(shard_folder, tmp_path, train=TrainConfig(**settings))
    assert "same" in second["eval"]
    assert second["held_out_loss"] == first["held_out_loss"]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == SMALL.steps


def test_a_text_of_another_tokenizer_is_refused_before_a_step(shard_folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for path in shard_folder.iterdir():
        if path.is_file():
            (other / path.name).write_bytes(path.read_bytes())
    values = json.loads((other / "tokenizer.json").read_bytes())
    (other / "tokenizer.json").write_text(json.dumps(values | {"padding": None}, indent=3))
    manifest = json.loads((other / "manifest.json").read_bytes())
    manifest.pop("checksum", None)
    manifest["files"].pop("tokenizer.json")
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LlmcurateError, match=r"eval x: .* another tokenizer"):
        pretrain(
            shard_folder,
            tmp_path / "out",
            train=TrainConfig(**{**vars(PLAIN), "eval": {"x": str(other)}}),
        )
    assert not (tmp_path / "out" / "checkpoints").exists()
