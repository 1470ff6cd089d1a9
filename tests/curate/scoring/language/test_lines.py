"""The lines that fastText reads: one per document, without its command words."""

from __future__ import annotations

import re
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.scoring.language.model import fasttext_lines
from curate.text.buffers import text_buffers

TEXTS = st.text(st.sampled_from("ab é文\n\r\t\0_<>/s") | st.characters(codec="utf-8"), max_size=40)
COMMANDS = st.sampled_from(["</s>", "__label__", "__label__de", "</s", " </s> ", "\n", " ", "文"])


def reference(text: str | None, max_chars: int) -> str:
    """The line, by string functions."""
    text = text or ""
    if max_chars:
        text = text[:max_chars]

    def blank(match: re.Match[str]) -> str:
        word = match.group()
        command = word == "</s>" or word.startswith("__label__")
        return " " * len(word.encode()) if command else word

    return re.sub(r"[^\0\t\n\v\f\r ]+", blank, text).replace("\n", " ") + "\n"


def lines_of(texts: list[str | None], max_chars: int = 0) -> tuple[list[str], list[bool]]:
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    lines, ends, words = fasttext_lines(data, offsets, max_chars)
    packed = lines.tobytes()
    cut = [packed[a:b].decode() for a, b in pairwise(ends)]
    return cut, words.tolist()


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.none() | TEXTS | st.lists(TEXTS | COMMANDS, max_size=5).map("".join), max_size=5),
    st.integers(0, 12),
)
def test_lines_are_those_of_the_reference(texts: list[str | None], max_chars: int) -> None:
    lines, words = lines_of(texts, max_chars)
    assert lines == [reference(t, max_chars) for t in texts]
    assert words == [bool(line.strip("\0\t\n\v\f\r ")) for line in lines]


def test_a_slice_of_a_batch_gives_its_own_lines() -> None:
    array = pa.array(["one", "two\nlines", None, "four"], pa.large_string()).slice(1, 2)
    lines, ends, words = fasttext_lines(*text_buffers(array), 0)
    assert lines.tobytes() == b"two lines\n\n"
    assert ends.tolist() == [0, 10, 11]
    assert words.tolist() == [True, False]


@pytest.mark.parametrize("text", ["a </s> b", "</s> b", "a\n</s>\nb", "__label__de b"])
def test_words_that_are_commands_are_blank(text: str) -> None:
    assert "</s>" not in lines_of([text])[0][0]
    assert "__label__" not in lines_of([text])[0][0]


def test_text_that_only_looks_like_a_fasttext_command_stays() -> None:
    text = "a</s> </s>b <s> label__ x__label__"
    assert lines_of([text]) == ([text + "\n"], [True])
