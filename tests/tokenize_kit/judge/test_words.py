"""Words and the tokens that they are made of, against a plain reference."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenize_kit.judge.packed_texts import packed
from tests.tokenize_kit.judge.word_lists import LETTER, MARK, SPACELESS, _kind, _runs, _words
from tokenize_kit.judge.words import (
    Segmentation,
    count_boundaries,
    count_words,
    letter_kinds,
)
from tokenize_kit.segment import read_dictionary


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
    kinds, cuts = Segmentation().kinds(), Segmentation().cut(data, offsets)[2]
    return count_words(data, offsets, kinds, cuts, starts, ends, sizes).tolist()


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


def boundaries_by_hand(text, tokens, known, cuts):
    """A row of count_boundaries; cuts: where words end, in characters."""
    ends = {k for token in tokens for k in token}
    words = _words(text, known, cuts)
    pairs = [(a, b) for a, b in pairwise(words) if a and b]
    kept = sum(any(a[1] <= k <= b[0] for k in ends) for a, b in pairs)
    within = sum(word[0] < k < word[1] for word in words if word for k in ends)
    return [len(pairs), kept, within]


def boundaries_counted(text, tokens, known, cuts):
    segmentation = Segmentation(separator=b"|" if known else b"")
    marked = "|".join(text[a:z] for a, z in pairwise([0, *cuts, len(text)])) if known else text
    raw = np.frombuffer(bytearray(marked.encode()), np.uint8)
    offsets = np.array([0, len(raw)])
    data, offsets, is_cut = segmentation.cut(raw, offsets)
    assert data.tobytes().decode() == text
    ends = [len(text[:k].encode()) for token in tokens for k in token]
    boundaries = np.zeros(len(is_cut), np.bool_)
    boundaries[ends] = True
    return count_boundaries(data, offsets, segmentation.kinds(), is_cut, boundaries).tolist()[0]


@pytest.mark.parametrize(
    ("text", "tokens", "cuts", "expected"),
    [
        pytest.param("the cat", [(0, 3), (3, 7)], None, [1, 1, 0], id="before-the-space"),
        pytest.param("the cat", [(0, 4), (4, 7)], None, [1, 1, 0], id="behind-it"),
        pytest.param("New York", [(0, 8)], None, [1, 0, 0], id="one-token-over-two-words"),
        pytest.param("aกา b", [(0, 1), (1, 5)], None, [0, 0, 0], id="unknown-words-between"),
        pytest.param("กินข้าว", [(0, 3), (3, 7)], [3], [1, 1, 0], id="thai-at-the-word"),
        pytest.param("กินข้าว", [(0, 2), (2, 7)], [3], [1, 0, 1], id="thai-beside-it"),
    ],
)
def test_tokens_keep_boundaries_of_words_or_cut_within(text, tokens, cuts, expected):
    case = (text, tokens, cuts is not None, cuts or [])
    assert boundaries_counted(*case) == expected == boundaries_by_hand(*case)


@settings(max_examples=200, deadline=None)
@given(_cut_texts(), st.booleans(), st.data())
def test_any_boundaries_are_counted_as_the_reference_does(case, known, draw):
    for text, tokens in zip(*case, strict=True):
        letters = [k for k in range(1, len(text)) if known and _kind(text[k]) != MARK]
        cuts = draw.draw(st.sets(st.sampled_from(letters))) if letters else ()
        case = (text, tokens, known, sorted(cuts))
        assert boundaries_counted(*case) == boundaries_by_hand(*case)


def test_a_dictionary_makes_words_of_runs(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("กิน\nข้าว\nบ้าน\n", encoding="utf-8")
    segmentation = Segmentation(read_dictionary(path))
    data, offsets = packed(["กินข้าว in บ้าน", "漢字"])
    data, offsets, cuts = segmentation.cut(data, offsets)
    kinds = segmentation.kinds()
    starts, ends, sizes = offsets[:-1], offsets[1:], np.ones(2, np.int64)
    rows = count_words(data, offsets, kinds, cuts, starts, ends, sizes).tolist()
    assert rows == [[4, 4, 4, 0, 0], [0, 0, 0, 2, 1]]
    boundaries = np.ones(len(cuts), np.bool_)
    assert count_boundaries(data, offsets, kinds, cuts, boundaries)[:, :2].tolist() == [
        [3, 3],
        [0, 0],
    ]
