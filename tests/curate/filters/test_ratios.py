"""Shares, lengths and repetition of a text: each measure as a published tool counts it."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from math import isqrt
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.documents.documents import documents
from curate.filters.ratios import Measure, Ratios
from curate.filters.special_characters import SPECIAL
from tests.curate.filters.filter_texts import JUNK, applied, measured, real_texts, texts

# NeMo Curator's regex_url, utils/constants.py.
URL = re.compile(r"http[s]?://(?:[a-zA-Z]|[0-9]|[$-_@.&+]|[!*\(\),]|(?:%[0-9a-fA-F][0-9a-fA-F]))+")


def times(items: list) -> list[int]:
    return sorted(Counter(items).values(), reverse=True)


def reference(text: str, char_ngram: int, word_ngram: int) -> dict[str, float]:
    def share(of: object) -> float:
        return sum(map(of, text)) / len(text) if text else 0.0

    def is_punctuation(c: str) -> bool:
        return c in string.punctuation or unicodedata.category(c)[0] == "P"

    plain = set(string.ascii_letters + string.digits + "\n?!,.")
    words, lines = text.split(), text.splitlines()
    stripped = []
    for word in words:
        ends = [at for at, c in enumerate(word) if c not in SPECIAL]
        stripped += [word[ends[0] : ends[-1] + 1].lower()] if ends else []
    chars = times([text[i : i + char_ngram] for i in range(len(text) - char_ngram + 1)])
    top = min(isqrt(len(chars)), sum(n > 1 for n in chars))
    starts = range(len(stripped) - word_ngram + 1)
    grams = times([tuple(stripped[i : i + word_ngram]) for i in starts])
    return {
        "digits": share(lambda c: unicodedata.category(c) == "Nd"),
        "upper_case": share(str.isupper),
        "letters": share(str.isalpha),
        "alphanumerics": share(str.isalnum),
        "non_alphanumerics": share(lambda c: c not in plain),
        "punctuation": share(is_punctuation),
        "brackets": share(lambda c: c in "()[]{}⟨⟩"),
        "white_space": share(str.isspace),
        "special_characters": share(lambda c: c in SPECIAL),
        "urls": sum(map(len, URL.findall(text))) / max(len(text), 1),
        "char_repetition": sum(chars[:top]) / max(sum(chars), 1),
        "word_repetition": sum(n for n in grams if n > 1) / max(sum(grams), 1),
        "characters": len(text),
        "words": len(words),
        "stripped_words": len(stripped),
        "lines": len(lines),
        "words_per_line": len(words) / max(len(lines), 1),
        "line_length": len(text) / max(len(lines), 1),
        "longest_line": max(map(len, lines), default=0),
        "word_length": sum(map(len, words)) / max(len(words), 1),
        "longest_word": max(map(len, words), default=0),
    }


def compare(values: list[str], char_ngram: int, word_ngram: int) -> None:
    step = Ratios(char_ngram=char_ngram, word_ngram=word_ngram)
    for text, row in zip(values, measured(applied(step, values)[0], step.name), strict=True):
        assert row == pytest.approx(reference(text, char_ngram, word_ngram)), text[:80]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        texts
        | st.text("ab𝄞", max_size=60)
        | st.lists(st.sampled_from(["http", "s", "://", "x#", "(a)", " "])).map("".join),
        max_size=4,
    ),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_measures_are_those_of_python(values: list[str], char_ngram: int, word_ngram: int) -> None:
    compare(values, char_ngram, word_ngram)


def test_junk_and_real_texts_are_measured_as_in_python() -> None:
    compare([*JUNK, *(text[:2000] for text in real_texts())], 10, 10)


# 30 characters, 3 lines, 5 words.
HAND = "See https://a.io/x (2 Ab)!\n\nno"


def test_a_text_counted_by_hand() -> None:
    (row,) = measured(applied(Ratios(char_ngram=2, word_ngram=1), [HAND])[0], "ratios")
    shares = {
        "digits": 1, "upper_case": 2, "letters": 16, "alphanumerics": 17, "brackets": 2,
        "white_space": 5, "punctuation": 8, "special_characters": 14, "non_alphanumerics": 9,
        "urls": 14,
    }  # fmt: skip
    counts = {
        "characters": 30, "lines": 3, "words": 5, "stripped_words": 4, "longest_line": 26,
        "longest_word": 14, "line_length": 10, "words_per_line": 5 / 3, "word_length": 5,
        "char_repetition": 0, "word_repetition": 0,
    }  # fmt: skip
    assert row == pytest.approx({name: n / 30 for name, n in shares.items()} | counts)


def test_repeated_n_grams_counted_by_hand() -> None:
    values = ["abababab", "x y. X, Y z"]
    first, second = measured(applied(Ratios(char_ngram=2, word_ngram=2), values)[0], "ratios")
    # ab 4 and ba 3 of 7 occurrences; of 2 distinct ones the most frequent one counts.
    assert first["char_repetition"] == pytest.approx(4 / 7)
    # x y, y x, x y, y z: two of four occur more than once.
    assert second["word_repetition"] == pytest.approx(2 / 4)


def test_n_grams_of_a_long_text_are_counted_in_parts() -> None:
    digits = np.random.default_rng(0).integers(0, 10, 5_000_000, dtype=np.uint8)
    text = (digits + 48).tobytes().decode()
    (row,) = measured(applied(Ratios(char_ngram=6), [text])[0], "ratios")
    grams = sum(digits[k : len(digits) - 5 + k].astype(np.int64) * 10**k for k in range(6))
    counts = np.sort(np.bincount(grams))[::-1]
    most = isqrt(np.count_nonzero(counts))
    assert row["char_repetition"] == pytest.approx(counts[:most].sum() / len(grams))


def test_empty_texts_are_zero_in_all_measures() -> None:
    rows = measured(applied(Ratios(), ["", None])[0], "ratios")
    assert all(row == dict.fromkeys(get_args(Measure), 0) for row in rows)


@pytest.mark.parametrize("name", get_args(Measure))
def test_values_equal_to_a_limit_are_kept(name: str) -> None:
    (row,) = measured(applied(Ratios(), [HAND])[0], "ratios")
    value = float(row[name])
    assert applied(Ratios(min={name: value}, max={name: value}), [HAND])[1] == [set()]
    assert applied(Ratios(min={name: value + 0.01}), [HAND])[1] == [{f"low_{name}"}]
    assert applied(Ratios(max={name: value - 0.01}), [HAND])[1] == [{f"high_{name}"}]


def test_words_of_languages_without_spaces_are_estimated() -> None:
    docs = documents({"text": ["我们今天在学校学习中国历史。"], "lang": ["zh"]})
    step = Ratios(words="estimate")
    (row,) = measured(step.apply(docs.within(step.name)), step.name)
    assert row["words"] == round(13 / 1.7)


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"min\.words 9 is above max\.words 3"):
        Ratios(min={"words": 9}, max={"words": 3})
    with pytest.raises(ValidationError, match="digit"):
        Ratios(max={"digit": 0.1})  # type: ignore[dict-item]
    assert Ratios().notes() == ["ratios: no limit was given, so nothing is dropped"]
    assert Ratios(max={"digits": 0.1}).notes() == []
