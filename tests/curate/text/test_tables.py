"""The line and word tables cut as Python's strings do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.documents.documents import documents
from curate.text.buffers import text_buffers
from curate.text.tables import segment, segments

SPACES = [c for c in map(chr, range(0x110000)) if c.isspace()]
# Neighbours of white space in UTF-8: one byte away in any place.
NEAR = "\x00\x08\x0e\x1b!\x7f\x84\x86\x9f\xa1\u167f\u1681\u1fff\u200b\u2027\u202a\u202e\u2030\u205e"
NEAR += "\u2060\u2fff\u3001\u1c80\u2000é漢🙂\ufeff"
TEXT = st.lists(st.sampled_from([*SPACES, *NEAR, "a", "bc", "\r\n", "\r", "\n"]), max_size=40)


def agrees(texts: list[str]) -> None:
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    table = segment(data, offsets)
    lines, words = table.lines, table.words
    assert table.chars.tolist() == [len(t) for t in texts]
    whole = data.tobytes()
    for row, text in enumerate(texts):
        first, stop = lines.rows[row], lines.rows[row + 1]
        cut = text.splitlines(keepends=True)
        assert stop - first == len(cut)
        at = int(offsets[row])
        for k, line in zip(range(first, stop), cut, strict=True):
            assert lines.raw[k] == at
            at += len(line.encode())
            a, z = int(lines.start[k]), int(lines.end[k])
            assert whole[a:z].decode() == line.strip()
            line_words = range(words.lines[k], words.lines[k + 1])
            split = line.split()
            assert [whole[words.start[w] : words.end[w]].decode() for w in line_words] == split
            assert [int(words.chars[w]) for w in line_words] == [len(w) for w in split]
    assert lines.raw[-1] == offsets[-1] and words.lines[-1] == len(words.start)


@settings(max_examples=500, deadline=None)
@given(st.lists(TEXT.map("".join), max_size=6))
def test_words_lines_and_characters_are_those_of_str(texts):
    agrees(texts)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=80), max_size=6))
def test_tables_cut_any_text_as_python_strings_do(texts):
    agrees(texts)


@pytest.mark.parametrize("text", [*SPACES, *NEAR])
def test_every_white_space_and_its_neighbours(text):
    agrees([text, f"a{text}b", f"{text}a", f"a{text}", f"a{text}{text}b\n{text}", ""])


def test_a_character_at_the_end_of_a_row_does_not_read_into_the_next():
    agrees(["a\r", "\nb", "é", "", "\x85", "x"])


def test_nulls_are_empty_and_slices_keep_their_place():
    array = pa.array(["one two", None, "three\nfour", "", "five"], pa.large_string())
    table = segment(*text_buffers(array.slice(1, 3)))
    assert np.diff(table.lines.rows).tolist() == [0, 2, 0]
    assert table.chars.tolist() == [0, 10, 0]
    assert len(table.words.start) == 2


def test_an_empty_batch_has_empty_tables():
    for array in (pa.array([], pa.large_string()), pa.array([None, ""], pa.large_string())):
        table = segment(*text_buffers(array))
        assert len(table.words.start) == len(table.lines.start) == 0
        assert table.lines.rows.tolist() == [0] * (len(array) + 1)


def test_segments_are_made_once_while_the_text_is_unchanged():
    docs = documents({"text": ["one two"]})
    assert segments(docs) is segments(docs)
    assert segments(docs) is segments(docs.within("other"))
