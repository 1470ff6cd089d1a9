"""Words and the tokens that they are made of, against a plain reference."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenize_kit.judge.tally import _RUNS, count_words, letter_kinds

NONE, LETTER, SPACELESS, MARK = range(4)


def _kind(char):
    category = unicodedata.category(char)[0]
    if category == "M":
        return MARK
    if category != "L":
        return NONE
    return SPACELESS if any(a <= ord(char) < z for a, z in _RUNS) else LETTER


def _runs(text):
    """(first character, end, letters, without spaces?) of each run."""
    runs = []
    at = 0
    while at < len(text):
        first, family, letters = at, None, 0
        while at < len(text) and (kind := _kind(text[at])) != NONE:
            if kind != MARK:
                if family not in (None, kind):
                    break
                family, letters = kind, letters + 1
            at += 1
        if at > first:
            runs.append((first, at, letters, family == SPACELESS))
        else:
            at += 1
    return runs


def reference(texts, cuts):
    """The rows of count_words; cuts: (start, end) of tokens in each text, in characters."""
    rows = []
    for text, tokens in zip(texts, cuts, strict=True):
        row = [0] * 5
        for first, end, letters, spaceless in _runs(text):
            n = sum(a < end and (z > first or first <= a) for a, z in tokens)
            if spaceless:
                row[3] += letters
                row[4] += n
            else:
                row[0] += 1
                row[1] += n
                row[2] += n == 1
        rows.append(row)
    return rows


def counted(texts, cuts):
    raw = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    positions = []
    for text, tokens, base in zip(texts, cuts, offsets.tolist(), strict=False):
        positions += [[base + len(text[:k].encode()) for k in token] for token in tokens]
    spans = np.array(positions, np.int64).reshape(-1, 2)
    sizes = np.array([len(tokens) for tokens in cuts], np.int64)
    data = np.frombuffer(bytearray().join(raw), np.uint8)
    starts, ends = spans[:, 0].copy(), spans[:, 1].copy()
    return count_words(data, offsets, letter_kinds(), starts, ends, sizes).tolist()


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        pytest.param("the cat", [(0, 3), (3, 7)], [2, 2, 2, 0, 0], id="space-before-is-free"),
        pytest.param("don't", [(0, 3), (3, 5)], [2, 2, 2, 0, 0], id="apostrophe-ends-a-word"),
        pytest.param("New York", [(0, 8)], [2, 2, 2, 0, 0], id="one-token-over-two-words"),
        pytest.param("ก็ดี", [(0, 1), (1, 4)], [0, 0, 0, 2, 2], id="thai-by-letters-without-marks"),
        pytest.param("a漢字", [(0, 2), (2, 3)], [1, 1, 1, 2, 2], id="script-ends-a-run"),
        pytest.param("1 2, 3", [(0, 6)], [0, 0, 0, 0, 0], id="digits-are-no-words"),
        pytest.param("né", [(0, 1), (1, 1), (1, 2)], [1, 3, 0, 0, 0], id="token-without-bytes"),
        pytest.param("", [], [0, 0, 0, 0, 0], id="empty"),
    ],
)
def test_words_are_runs_of_letters_and_their_tokens_are_counted(text, tokens, expected):
    assert counted([text], [tokens]) == [expected] == reference([text], [tokens])


@st.composite
def _cut_texts(draw):
    texts = draw(st.lists(st.text("ab 1'é\u0301ที่กΩ漢か\u200d😀\n", max_size=30), max_size=4))
    cuts = []
    for text in texts:
        positions = draw(st.lists(st.integers(0, len(text)), max_size=12))
        bounds = sorted([0, *positions, len(text)]) if text else []
        cuts.append([(bounds[i], bounds[i + 1]) for i in range(len(bounds) - 1)])
    return texts, cuts


@settings(max_examples=200, deadline=None)
@given(_cut_texts())
def test_any_texts_cut_anywhere_are_counted_as_the_reference_does(case):
    texts, cuts = case
    assert counted(texts, cuts) == reference(texts, cuts)


def test_letters_of_spaceless_scripts_are_those_that_unicode_names():
    wanted = (
        "CJK UNIFIED",
        "HIRAGANA",
        "KATAKANA LETTER",
        "THAI",
        "LAO",
        "KHMER",
        "MYANMAR LETTER",
    )
    kinds = letter_kinds()
    for code in (*range(0x80, 0x3400), *range(0x4E00, 0x4F00), *range(0xA900, 0xAB00)):
        if unicodedata.category(chr(code))[0] == "L":
            spaceless = unicodedata.name(chr(code), "").startswith(wanted)
            assert not spaceless or kinds[code] == SPACELESS, hex(code)
    assert kinds[ord("a")] == kinds[ord("न")] == kinds[ord("한")] == LETTER
