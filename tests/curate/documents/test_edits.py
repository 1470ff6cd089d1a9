"""Positions followed through edits, checked on texts of numbered elements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from curate.documents.edits import Edit, byte_length, remaining


def edited(data: list[int], spans: list[tuple[int, int, str]]) -> list[int]:
    """The data without the spans; a replacement's bytes are -1."""
    out, at = [], 0
    for start, end, new in spans:
        out += data[at:start] + [-1] * len(new.encode())
        at = end
    return out + data[at:]


def edits(step: str, spans: list[tuple[int, int, str]]) -> list[Edit]:
    return [Edit(step, "rule", a, b, r or None) for a, b, r in spans]


@st.composite
def spans_of(draw: st.DrawFn, size: int) -> list[tuple[int, int, str]]:
    ends = sorted(draw(st.lists(st.integers(0, size), max_size=8).map(lambda v: v[: len(v) & ~1])))
    pairs = [(ends[i], ends[i + 1]) for i in range(0, len(ends), 2)]
    return [(a, b, draw(st.sampled_from(["", "x", "long one"]))) for a, b in pairs if a < b]


@given(st.data())
def test_remaining_ranges_point_at_the_surviving_text_after_edits(data: st.DataObject) -> None:
    text = list(range(data.draw(st.integers(1, 40))))
    pieces = [(a, b) for a, b, _ in data.draw(spans_of(len(text)))]
    first = data.draw(spans_of(len(text)))
    middle = edited(text, first)
    second = data.draw(spans_of(len(middle)))
    final = edited(middle, second)
    ranges = remaining(pieces, edits("one", first) + edits("two", second))
    inside = {i for a, b in pieces for i in range(a, b)}
    assert [v for a, b in ranges for v in final[a:b]] == [v for v in final if v in inside]
    assert byte_length(ranges) == sum(v in inside for v in final)


def test_without_edits_ranges_do_not_move() -> None:
    assert remaining([(3, 9), (9, 9)], []) == [(3, 9)]
