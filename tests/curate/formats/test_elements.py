"""Elements of XML are found in any cut of lines and chunks, with bounded memory."""

from __future__ import annotations

from itertools import product

import pytest

from curate.formats.elements import elements
from tests.curate.doubling import grows_linearly

PAGES = (
    b"<a><page>1</page><pages/><page x='>'><!--</page><page>--><![CDATA[</page>]]></page >\n<page>"
)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_chunks_change_no_element() -> None:
    whole = list(elements([PAGES], 0, None, b"page", 999))
    assert [(e.offset, e.whole) for e in whole] == [(3, True), (25, True), (85, False)]
    for size in range(1, 40):
        assert list(elements(cut(PAGES, size), 0, None, b"page", 999)) == whole


def test_elements_belong_to_the_range_in_which_they_begin() -> None:
    pages = b"<a>\n<page>1</page> <page x='>'></page ><page><b/></page></a>"
    for first, size in product(range(len(pages)), (1, 7, 99)):
        ranges = ((0, first), (first, None))
        found = [
            e.offset
            for start, end in ranges
            for e in elements(cut(pages[start:], size), start, end, b"page", 999)
        ]
        assert found == [4, 19, 39]


def test_an_element_without_content_ends_at_the_next_element() -> None:
    rows = b"<rows><row a='1 > 0' />\n<row b='2'></row><rowing/><row/></rows>"
    found = [e.data for e in elements(cut(rows, 5), 0, None, b"row", 99, empty=True)]
    assert found == [b"<row a='1 > 0' />\n", b"<row b='2'>", b"<row/>"]


def test_an_element_beyond_the_limit_is_measured_and_not_held() -> None:
    def chunks() -> list[bytes]:
        return [b"<page>", *[b"x" * 1000] * 50, b"</page><page>1</page>"]

    large, small = elements(chunks(), 0, None, b"page", 2000)
    assert (large.data, large.size, large.whole) == (None, 50_013, True)
    assert small.data == b"<page>1</page>"


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(
    "unit", [b"<page>", b"<page><!--", b"<page", b"<![CDATA[", b"</page", b"<page "]
)
def test_unclosed_elements_take_linear_time(unit: bytes, empty: bool) -> None:
    def read(data: bytes) -> object:
        return list(elements(cut(data, 5000), 0, None, b"page", 1 << 30, empty))

    assert grows_linearly(read, lambda n: unit * (n // len(unit)), 50_000)
