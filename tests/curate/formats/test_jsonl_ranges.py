"""JSON lines read in byte ranges give every line once, however the ranges are cut."""

from __future__ import annotations

import io
import json
from itertools import chain, pairwise
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from curate.formats import jsonl

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
    with mock.patch.object(jsonl, "CHUNK", chunk):
        parts = [read(data, a, z) for a, z in pairwise(bounds) if a < z]
        assert list(chain(*parts)) == read(data, 0, None)


def test_a_line_over_many_ranges_is_not_read_again_for_each():
    data = b'{"text": "' + b"x" * 100_000 + b'"}\n{"text": "y"}\n'
    file = io.BytesIO(data)
    with mock.patch.object(jsonl, "CHUNK", 100):
        assert list(jsonl.read_lines(file, "plain", 1000, 2000, 40, {})) == []
    assert file.tell() < 2200
