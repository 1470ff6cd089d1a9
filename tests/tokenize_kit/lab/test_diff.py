"""The difference of two tokenizers: vocabularies, orders, settings, and cuts of texts."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenize_kit.judge.packed_texts import TEXTS, packed
from tests.tokenize_kit.judge.word_lists import _words
from tokenize_kit.change.convert import convert
from tokenize_kit.judge.tally import Texts
from tokenize_kit.judge.words import Segmentation, word_spans
from tokenize_kit.lab.diff import Cuts, diff
from tokenize_kit.learn.training import train_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """small/ and large/: BPE of the same texts; unigram/ with its tokenizer.model."""
    folder = tmp_path_factory.mktemp("diff")
    train_tokenizer(TEXTS, folder / "small", vocab=280)
    train_tokenizer(TEXTS, folder / "large", vocab=300, special_tokens=["<|endoftext|>", "<x>"])
    train_tokenizer(TEXTS, folder / "unigram", vocab=400, model="unigram")
    convert(folder / "small", folder / "ranks", "tiktoken")
    return folder


def batches(texts):
    return [(*packed(texts), {})]


def test_a_tokenizer_does_not_differ_from_itself(folder):
    result = diff(folder / "large", folder / "large", batches(TEXTS))
    assert (result["first"], result["second"], result["ids"]["moved"]) == (0, 0, 0)
    assert result["both"] == result["ids"]["same"] == 298
    assert result["special"] == result["settings"] == []
    order = result["order"]
    assert order["same_order"] and order["same_until"] == order["first"] == order["second"]
    assert result["texts"]["unlike_texts"] == result["texts"]["unlike_bytes"] == 0


def test_a_larger_vocabulary_extends_the_smaller_one(folder):
    result = diff(folder / "small", folder / "large", batches(TEXTS))
    assert (result["first"], result["both"]) == (0, 279)
    assert result["second"] == 298 - 279
    assert result["order"]["same_until"] == result["order"]["first"] == 279 - 256
    # A second special token moves all ids by one.
    assert (result["ids"]["same"], result["ids"]["moved"]) == (0, 279)
    assert result["special"] == [{"text": "<x>", "first": None, "second": 1}]
    uses = [row["uses"] for row in result["only"][1]]
    assert uses == sorted(uses, reverse=True) and uses[0] > 0
    assert sum(row["second"] for row in result["scripts"]) == result["second"]


def test_formats_of_one_tokenizer_have_the_same_tokens(folder):
    for one, other in (
        ("small", "ranks/tokenizer.tiktoken"),
        ("unigram", "unigram/tokenizer.model"),
    ):
        pattern = "o200k" if other.endswith("tiktoken") else None
        result = diff(folder / one, folder / other, batches(TEXTS), pattern=pattern)
        assert (result["first"], result["second"], result["ids"]["moved"]) == (0, 0, 0)
        assert result["texts"]["unlike_stretches"] == 0
        assert result["settings"]


def test_orders_of_unlike_models_are_not_compared(folder):
    result = diff(folder / "small", folder / "unigram")
    assert (result["order"], result["texts"]) == ({"kind": "unlike"}, None)


def test_scores_that_differ_are_counted(folder, tmp_path):
    parts = json.loads((folder / "unigram" / "tokenizer.json").read_text())
    parts["model"]["vocab"][-1][1] -= 1
    (tmp_path / "other.json").write_text(json.dumps(parts))
    result = diff(folder / "unigram", tmp_path / "other.json")
    assert result["order"]["kind"] == "scores" and result["order"]["unlike"] == 1


def by_hand(text, tokens, words):
    """(bytes in stretches cut differently, words cut differently, {(cut, other cut): times});
    tokens: (start, end) of both, in bytes."""
    ends = [{k for token in of_one for k in token} for of_one in tokens]
    raw = text.encode()
    shared = sorted(ends[0] & ends[1] | {0, len(raw)})
    stretches: dict[tuple[tuple[bytes, ...], ...], int] = {}
    size = 0
    for a, z in pairwise(shared):
        inner = [sorted(k for k in of_one if a < k < z) for of_one in ends]
        if inner[0] or inner[1]:
            size += z - a
            cuts = tuple(tuple(raw[i:j] for i, j in pairwise([a, *of_one, z])) for of_one in inner)
            stretches[cuts] = stretches.get(cuts, 0) + 1
    unlike = ends[0] ^ ends[1]
    return size, sum(any(a < k < z for k in unlike) for a, z in words), stretches


def _text(pieces):
    return b"".join(pieces).decode("utf-8", "ignore")


def known_words(text):
    spans = [word for word in _words(text, True, []) if word]
    return [(len(text[:a].encode()), len(text[:z].encode())) for a, z in spans]


@settings(max_examples=150, deadline=None)
@given(st.text("ab 1é\u0301ที่漢😀", max_size=20), st.data())
def test_stretches_and_words_are_those_counted_by_hand(text, draw):
    raw = text.encode()
    tokens = []
    for _ in range(2):
        inner = draw.draw(st.sets(st.integers(1, len(raw) - 1))) if len(raw) > 1 else set()
        tokens.append(list(pairwise([0, *sorted(inner), len(raw)])) if raw else [])
    texts = Texts.of(*packed([text]), Segmentation(separator=b"|"))
    assert texts.words().tolist() == [list(word) for word in known_words(text)]
    cuts = Cuts()
    cuts.add(texts, [np.array(of_one, np.int64).reshape(-1, 2).T for of_one in tokens])
    size, words, stretches = by_hand(text, tokens, known_words(text))
    result = cuts.result()
    assert (result["unlike_bytes"], result["unlike_words"]) == (size, words)
    assert result["unlike_texts"] == bool(stretches)
    assert result["unlike_stretches"] == sum(stretches.values())
    words_of = [n for cuts, n in stretches.items() if any(map(str.isalpha, _text(cuts[0])))]
    assert [row["uses"] for row in result["examples"]] == sorted(words_of)[::-1]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("ab 1é\u0301ที漢", max_size=12), min_size=1, max_size=3), st.booleans())
def test_words_lie_where_runs_of_letters_do(texts, known):
    segmentation = Segmentation(separator=b"|" if known else b"")
    data, offsets = packed(texts)
    data, offsets, cuts = segmentation.cut(data, offsets)
    spans = word_spans(data, offsets, segmentation.kinds(), cuts).tolist()
    expected = []
    for text, base in zip(texts, offsets.tolist(), strict=False):
        for a, z in (word for word in _words(text, known, []) if word):
            expected.append([base + len(text[:k].encode()) for k in (a, z)])
    assert spans == expected
