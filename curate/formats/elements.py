"""Read the elements of an XML file one at a time. Line breaks have no meaning.

The file as a whole is never parsed, so entities cannot be declared, damage affects only the element
that contains it, and a reader may begin anywhere except inside a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TAIL = 64  # most bytes of a tag or mark that is searched for
_SECTIONS = {b"<![CDATA[": re.compile(rb"\]\]>"), b"<!--": re.compile(rb"-->")}


@dataclass(slots=True)
class Element:
    """An element of an XML file. `offset` is the position of its first byte, `size` is in bytes.
    `data` is None if the size is above the limit. `whole` is True if the end tag was found."""

    offset: int
    data: bytes | None
    size: int
    whole: bool


def elements(
    chunks: Iterable[bytes], at: int, end: int | None, tag: bytes, limit: int, empty: bool = False
) -> Iterator[Element]:
    """Yield the elements named `tag` that begin in [at, end). `at` is the offset of the first byte
    of `chunks`. At most `limit` bytes of an element are kept in memory. If `empty` is True,
    elements have only attributes, and each ends before the next `<`."""
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
