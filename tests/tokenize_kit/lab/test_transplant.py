"""Tables of a model for another tokenizer: rows that stay, rows that are made."""

from __future__ import annotations

import numpy as np
import pytest

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.change.original import ids_of, keys_of, open_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.lab.addition import Transplant
from tokenize_kit.learn.training import train_tokenizer

TEXTS = ["the cat sat on the mat, then that; they ran", "low lower lowest กินข้าว Matte"] * 20
MODELS = {"bpe": 330, "char-bpe": 350, "unigram": 480}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Folders of a tokenizer of each model, of two sizes; the second ends texts by `</s>`."""
    folder = tmp_path_factory.mktemp("tokenizers")
    for model, vocab in MODELS.items():
        train_tokenizer(iter(TEXTS[:1] * 9), folder / model, vocab=vocab, model=model)
        more = {"special_tokens": ("</s>", "<mask>")}
        train_tokenizer(iter(TEXTS), folder / f"{model}2", vocab=vocab + 30, model=model, **more)
    return folder


def table_of(tokenizer, extra=0):
    return np.random.default_rng(7).normal(size=(tokenizer.size + extra, 5)).astype(np.float32)


@pytest.mark.parametrize("model", MODELS)
def test_transplanting_to_the_same_tokenizer_keeps_all_rows(tokenizers, model):
    tokenizer = open_tokenizer(tokenizers / model)
    table = table_of(tokenizer, extra=3)  # padding goes
    move = Transplant(tokenizers / model, tokenizers / model)
    assert np.array_equal(move.rows(table), table[: tokenizer.size])
    assert move.describe()["common_tokens"] == tokenizer.size


@pytest.mark.parametrize("old", MODELS)
@pytest.mark.parametrize("new", [f"{model}2" for model in MODELS])
def test_tokens_of_both_keep_their_rows_and_others_are_means(tokenizers, old, new):
    before, after = open_tokenizer(tokenizers / old), open_tokenizer(tokenizers / new)
    table = table_of(before)
    rows = Transplant(tokenizers / old, tokenizers / new).rows(table)
    own, other = ids_of(before), ids_of(after)
    assert np.array_equal(rows[other["special", ""]], table[own["special", ""]])  # ends of texts
    shared = own.keys() & other.keys()
    assert len(shared) > 100 and b" " in shared and b"\xe0" in shared
    made = 0
    for number, keys in keys_of(after).items():
        key = next((key for key in keys if key in own), keys[-1])
        if key in own:
            assert np.array_equal(rows[number], table[own[key]])
        elif isinstance(key, bytes) and (text := key.decode(errors="ignore")).encode() == key:
            ids = before.encode(*pack_texts([text]))[0]
            made += 1
            assert np.allclose(rows[number], table[ids].mean(0), atol=1e-6)
    assert made >= 5
    assert np.isfinite(rows).all() and len(rows) == after.size


def test_focus_makes_rows_within_those_of_both(tokenizers):
    before, after = open_tokenizer(tokenizers / "bpe"), open_tokenizer(tokenizers / "bpe2")
    texts = [pack_texts(TEXTS)]
    move = Transplant(tokenizers / "bpe", tokenizers / "bpe2", "focus", texts=lambda: texts)
    rows, table = move.rows(table_of(before)), table_of(before)
    assert 0 < move.describe()["focused"] <= len(move.new)
    for ids, weights in move.blends:
        if weights is not None:
            assert weights.sum() == pytest.approx(1) and (weights > 0).all()
            assert set(ids) <= set(move.kept)
    assert (rows.max(0) <= table.max(0) + 1e-6).all() and len(rows) == after.size
    with pytest.raises(LlmcurateError, match="learns from texts"):
        Transplant(tokenizers / "bpe", tokenizers / "bpe2", "focus")
    with pytest.raises(LlmcurateError, match="choose mean or focus"):
        Transplant(tokenizers / "bpe", tokenizers / "bpe2", "zero")
