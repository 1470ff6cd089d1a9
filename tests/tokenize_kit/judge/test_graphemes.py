"""Grapheme clusters and the tokens that cut them, against the package `regex`."""

from __future__ import annotations

import numpy as np
import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tokenize_kit.judge.packed_texts import packed
from tokenize_kit.judge.graphemes import (
    BEGINS,
    IS_CHARACTER,
    cluster_classes,
    cluster_cuts,
    cluster_flags,
    only_marks,
)
from tokenize_kit.judge.tally import spread_bytes

# One or more of every class, with what the rules treat apart.
LETTERS = (
    "aกำ\u0e48ิเ\r\n\x00\u0301\u200c\u200d🇹🇭\u0600\u0903क\u094dष\u1100\u1161\u11a8가각👩❤\ufe0f🏽3"
)


def clusters(text):
    """(first, end) of each cluster, in bytes."""
    ends = np.cumsum([0, *(len(c.encode()) for c in regex.findall(r"\X", text))])
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=3))
@example(["👩‍👩‍👧‍👦🇹🇭🇩🇪क्षि", "น้ำที่เก่ง", ""])
def test_clusters_begin_where_those_of_regex_do(texts):
    data, offsets = packed(texts)
    flags = cluster_flags(data, offsets, cluster_classes())
    bases = zip(texts, offsets.tolist(), strict=False)
    begins = {base + first for text, base in bases for first, _ in clusters(text)}
    begins.update(offsets[1:].tolist())
    assert set(np.flatnonzero(flags & BEGINS).tolist()) == begins
    assert (flags & IS_CHARACTER > 0).sum() == sum(map(len, texts))


@pytest.mark.parametrize(
    ("tokens", "cut", "marks"),
    [
        pytest.param(["ที่", "นี่"], [0, 0], [0, 0], id="whole-clusters"),
        pytest.param(["ที", "่นี่"], [1, 1], [0, 0], id="tone-mark-cut-off"),
        pytest.param(["ที", "่", "นี่"], [1, 1, 0], [0, 1, 0], id="tone-mark-alone"),
        pytest.param(["น", "า"], [0, 0], [0, 1], id="vowel-that-stands-beside"),
        pytest.param(["เ", "ก"], [0, 0], [1, 0], id="vowel-that-stands-before"),
        pytest.param(["न", "मस्", "ते"], [0, 1, 1], [0, 0, 0], id="conjunct"),
        pytest.param(["a", " b"], [0, 0], [0, 0], id="latin"),
    ],
)
def test_tokens_that_cut_clusters_and_tokens_of_marks(tokens, cut, marks):
    data, offsets = packed(["".join(tokens)])
    flags = cluster_flags(data, offsets, cluster_classes())
    ends = np.cumsum([len(token.encode()) for token in tokens])
    starts = np.append(0, ends[:-1])
    assert cluster_cuts(flags, starts, ends).tolist() == cut
    assert only_marks(flags, starts, ends).tolist() == marks


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([(0, 2), (2, 2), (2, 2), (2, 5), (5, 6), (6, 9)], id="sentencepiece"),
        pytest.param([(0, 2), (2, 6), (2, 6), (2, 6), (2, 6), (6, 9)], id="tokenizers"),
    ],
)
def test_tokens_of_bytes_lie_one_after_the_other(spans):
    """A word of two bytes, a Thai letter and a control character in bytes, a word."""
    starts, ends = np.array(spans).T
    is_byte = np.array([False, True, True, True, True, False])
    spread = np.array(spread_bytes(starts, ends, is_byte)).T.tolist()
    assert spread == [[0, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 9]]
