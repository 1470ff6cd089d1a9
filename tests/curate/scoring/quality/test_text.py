"""Texts as DCLM gives them to its model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.scoring.language.model import fasttext_lines
from curate.scoring.quality.model import joined_lines, quality_lines
from curate.text.buffers import text_buffers

# Every line end and white space of Python, and letters of one to four bytes.
ALPHABET = (
    "ab\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f \x85\xa0é\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000"
    "文\x00🙂"
)


def reference(text: str) -> str:
    return " ".join(text.strip().splitlines())


def joined(texts: list[str | None]) -> list[str]:
    data, offsets = joined_lines(*text_buffers(pa.array(texts, pa.large_string())))
    return [data[a:b].tobytes().decode() for a, b in pairwise(offsets)]


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.text(st.sampled_from(ALPHABET), max_size=12), max_size=5))
def test_lines_are_joined_as_python_joins_them(texts: list[str]) -> None:
    assert joined(texts) == [reference(t) for t in texts]


# What a line may be made of that fastText has an opinion on.
PARTS = ("</s>", "__label__hq", "<", "/s>", "word", " ", "\n", "\0", "\u2028", "\x0b", "é")


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=6).map("".join), max_size=4))
def test_lines_are_those_of_the_joined_texts(texts: list[str]) -> None:
    whole = pa.array([reference(t) for t in texts], pa.large_string())
    expected = fasttext_lines(*text_buffers(whole), 0)
    arrays = quality_lines(*text_buffers(pa.array(texts, pa.large_string())))
    for array, theirs in zip(arrays, expected, strict=True):
        assert array.tolist() == theirs.tolist()


def test_windows_line_ends_are_one_blank() -> None:
    assert joined([" a\r\nb\n\nc \r\n", None, ""]) == ["a b  c", "", ""]


@settings(deadline=None)  # the first example compiles
@given(st.binary(max_size=12))
def test_bytes_that_are_no_utf8_lose_nothing_but_white_space(raw: bytes) -> None:
    data = np.frombuffer(raw, np.uint8).copy()
    out, offsets = joined_lines(data, np.array([0, len(raw)], np.int64))
    assert offsets[-1] == len(out) <= len(raw)
    assert [b for b in out.tolist() if b > 0xE3] == [b for b in raw if b > 0xE3]
