"""Elements of an XML file, one after the other, wherever its lines end.

The file as a whole is never parsed: an element's bytes are given to who reads it, so that no entity
can be declared, damage ends with its element, and a reader may begin anywhere but within a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TAIL = 64  # bytes that a mark has at most
_SECTIONS = {b"<![CDATA[": re.compile(rb"\]\]>"), b"<!--": re.compile(rb"-->")}


@dataclass(slots=True)
class Element:
    """offset: of its first byte; data: None where it has more bytes than are held; size: in bytes;
    whole: whether its end was met."""

    offset: int
    data: bytes | None
    size: int
    whole: bool


def elements(
    chunks: Iterable[bytes], at: int, end: int | None, tag: bytes, limit: int, empty: bool = False
) -> Iterator[Element]:
    """The elements of a name that begin in [at, end); offsets count from `at` in what the chunks
    hold. empty: they have attributes alone, and reach up to the next element's first byte."""
    opening = re.compile(rb"<%b(?=[\s/>])" % tag)
    closing = rb"</%b\s{0,16}>|(?=<%b[\s/>])|<!\[CDATA\[|<!--" % (tag, tag)
    inside = re.compile(rb"(?=<)" if empty else closing)
    data, scan, begin, wanted = bytearray(), 0, -1, opening

    def element(stop: int, whole: bool) -> Element:
        size = at + stop - begin
        held = begin >= at and size <= limit
        return Element(begin, bytes(data[begin - at : stop]) if held else None, size, whole)

    for chunk in chunks:
        data += chunk
        while match := wanted.search(data, scan):
            scan, mark = match.end(), match[0]
            if wanted is opening:
                begin, wanted = at + match.start(), inside
                if end is not None and begin >= end:
                    return
            elif mark in _SECTIONS:
                wanted = _SECTIONS[mark]
            elif wanted is not inside:
                wanted = inside
            else:
                yield element(scan, empty or mark != b"")
                wanted = opening
        scan = max(scan, len(data) - TAIL)
        if wanted is opening and end is not None and at + scan >= end:
            return
        held = wanted is not opening and at + len(data) - begin <= limit
        passed = max(begin - at, 0) if held else scan
        del data[:passed]
        at, scan = at + passed, scan - passed
    if wanted is not opening:
        yield element(len(data), empty)
