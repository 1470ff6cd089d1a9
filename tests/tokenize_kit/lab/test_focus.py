"""Blends of embeddings by contexts: sparsemax, vectors, and the rows of an extended tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from llmcurate.base.errors import LlmcurateError
from tokenize_kit.change.original import open_tokenizer
from tokenize_kit.change.verify import pack_texts
from tokenize_kit.lab.addition import Rows
from tokenize_kit.lab.embeddings import Checkpoint, sparsemax, token_vectors, write_tensors
from tokenize_kit.lab.extend import extend
from tokenize_kit.learn.training import train_tokenizer


@given(
    arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(-3, 3))
)
def test_sparsemax_is_the_nearest_point_of_the_simplex(scores):
    nearest = sparsemax(scores)
    assert np.allclose(nearest.sum(1), 1) and (nearest >= 0).all()
    for row, point in zip(scores, nearest, strict=True):
        low, high = row.min() - 1, row.max()  # the threshold, by halving
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(row - middle, 0).sum() > 1 else (low, middle)
        assert np.allclose(point, np.maximum(row - low, 0), atol=1e-9)


def test_tokens_of_the_same_contexts_have_the_same_direction():
    """`5` and `6` stand between 1 and 2, `7` between 3 and 4; 8 nowhere."""
    texts = [[1, 5, 2], [1, 6, 2], [3, 7, 4], [9, 1, 9], [9, 4, 9]] * 5
    ids = np.array([token for text in texts for token in text])
    vectors = token_vectors(ids, np.full(len(texts), 3), 10)
    assert vectors[5] @ vectors[6] == pytest.approx(1)
    assert vectors[5] @ vectors[7] < 0.1
    assert not vectors[8].any() and np.linalg.norm(vectors[9]) == pytest.approx(1)


def test_nothing_to_learn_from_gives_no_direction():
    for ids in ([], [3], [3, 3]):
        vectors = token_vectors(np.array(ids, np.int64), np.array([len(ids)]), 5)
        assert vectors.shape[0] == 5 and np.isfinite(vectors).all()


TEXTS = [
    f"the {animal} {verb} on the {place}, then {end}"
    for animal in ("cat", "dog", "wombat")
    for verb in ("sat", "slept")
    for place in ("mat", "sofa", "roof")
    for end in ("left", "stayed")
]


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    texts = [text for text in TEXTS if "wombat" not in text] * 3
    train_tokenizer(iter(texts), folder, vocab=330, pattern="gpt2")
    rows = np.random.default_rng(0).normal(size=(330, 6)).astype(np.float32)
    write_tensors(folder / "x.safetensors", {"wte.weight": (rows, "F32")})
    return folder


def extended(old, out, texts):
    rows = Rows(old / "x.safetensors", init="focus", texts=lambda: [pack_texts(texts)])
    extend(old, [pack_texts(texts)], out, 9, rows=rows)
    table = Checkpoint(out / "embeddings.safetensors").matrix("wte.weight")
    return open_tokenizer(out), table


def test_a_new_embedding_is_a_blend_of_tokens_with_similar_contexts(old, tmp_path):
    tokenizer, table = extended(old, tmp_path / "out", TEXTS * 3)
    before = Checkpoint(old / "x.safetensors").matrix("wte.weight")
    size = open_tokenizer(old).size
    assert np.array_equal(table[:size], before[:size])
    ids = tokenizer.encode(*pack_texts([" wombat", " cat", " dog", " sat"]))[0].tolist()
    wombat, cat, dog, sat = ids
    assert wombat >= size > max(cat, dog, sat)
    near = {k: np.abs(table[wombat] - before[[k]]).sum() for k in (cat, dog, sat)}
    assert near[sat] > min(near[cat], near[dog])
    weights = np.linalg.lstsq(before[[cat, dog]].T, table[wombat], rcond=None)[0]
    assert np.allclose(weights @ before[[cat, dog]], table[wombat], atol=0.2)


def test_the_order_of_texts_changes_no_row(old, tmp_path):
    _, first = extended(old, tmp_path / "a", TEXTS * 3)
    _, second = extended(old, tmp_path / "b", (TEXTS * 3)[::-1])
    assert np.array_equal(first, second)


def test_focus_without_texts_is_refused(old):
    with pytest.raises(LlmcurateError, match="init focus: it learns from texts"):
        Rows(old / "x.safetensors", init="focus")
