"""JSONL read in byte ranges gives every line once, however the ranges are cut."""

from __future__ import annotations

import io
import json
from itertools import chain, pairwise
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from curate.formats import compression, jsonl
from curate.formats.lines import ranges
from curate.formats.listing import InputFile

LINES = st.lists(st.one_of(st.none(), st.integers(0, 60)), max_size=10)


def read(data: bytes, start: int, end: int | None) -> list:
    events = jsonl.read_lines(io.BytesIO(data), "plain", start, end, 40, {})
    return [(event.offset, event.reject, event.text) for event in events]


@settings(max_examples=300, deadline=None)
@given(LINES, st.sets(st.integers(0, 500)), st.sampled_from([1, 3, 64]), st.booleans())
def test_ranges_give_the_lines_of_the_whole(sizes, cuts, chunk, open_end):
    texts = (b"" if n is None else json.dumps({"text": "x" * n}).encode() for n in sizes)
    data = b"".join(text + b"\n" for text in texts)
    data = data[:-1] if open_end else data
    bounds = [0, *sorted(c for c in cuts if 0 < c < len(data)), len(data)]
    with mock.patch.object(compression, "BLOCK", chunk):
        parts = [read(data, a, z) for a, z in pairwise(bounds) if a < z]
        assert list(chain(*parts)) == read(data, 0, None)


def test_a_line_as_long_as_the_limit_is_read_and_a_longer_one_reported():
    """The line is after another one, or the last one without a line end."""
    for size, end, longer in (
        (40, b"\n", False),
        (41, b"\n", True),
        (40, b"", False),
        (41, b"", True),
    ):
        line = json.dumps({"text": "x" * (size - 12)}).encode()
        assert len(line) == size
        for before in (b"", b"{}\n"):
            *_, (offset, reject, text) = read(before + line + end, 0, None)
            assert offset == len(before) and (text is None) == longer
            expected = ("line_too_long", 41.0, 40.0, "passed over, not read whole")
            assert reject == (expected if longer else None)


def test_a_range_ends_before_the_line_that_begins_where_it_does():
    data = b'{"text": "a"}\n{"text": "b"}\n'
    assert [text for _, _, text in read(data, 0, 14)] == ["a"]
    assert [text for _, _, text in read(data, 14, 28)] == ["b"]
    assert [text for _, _, text in read(data, 1, 14)] == []
    assert [text for _, _, text in read(data, 13, 15)] == ["b"]


def test_a_file_is_cut_from_one_and_a_half_times_the_size_of_a_range_on():
    for size, starts in ((150, [0]), (151, [0, 100]), (249, [0, 100]), (250, [0, 100, 200])):
        file = InputFile("/in/a.jsonl", "a.jsonl", "jsonl", "plain", size, "s")
        assert ranges(file, 100) == list(zip(starts, [*starts[1:], None], strict=True))
        packed = InputFile("/in/a.jsonl.gz", "a.jsonl.gz", "jsonl", "gzip", size, "s")
        assert ranges(packed, 100) == [(0, None)]


def test_a_line_over_many_ranges_is_not_read_again_for_each():
    data = b'{"text": "' + b"x" * 100_000 + b'"}\n{"text": "y"}\n'
    file = io.BytesIO(data)
    with mock.patch.object(compression, "BLOCK", 100):
        assert list(jsonl.read_lines(file, "plain", 1000, 2000, 40, {})) == []
    assert file.tell() < 2200
