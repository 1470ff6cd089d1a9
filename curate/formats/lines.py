"""Lines of text files, and what joined or badly resumed files have between them.

`cat` leaves the byte order mark of a file within the joined one, and downloads that were
preallocated or badly resumed hold runs of NUL bytes. Marks are passed over where a line begins.
NULs are reported with their place and number, and long runs of them are never held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from curate.formats.compression import decompressed_chunks
from curate.formats.events import Corrupt, Event, Row
from curate.text.decoding import encoding_of_file, utf_8_of

BOM = b"\xef\xbb\xbf"
HEAD = 1 << 20  # bytes by which is told how a file is laid out
Line = tuple[int, bytes | None, int]
"""Offset, bytes (None where they are more than the limit) and size in the file."""

_MARKS = re.compile(rb"(?:\xef\xbb\xbf)+")
_RUN = re.compile(rb"\0{64,}")
_HOLE = re.compile(rb"\A\0+|\0{4,}|\0+\r*\Z")


def unheard(offset: int, what: str) -> None:
    """Damage that nobody wants to hear of."""


class Held:
    """Bytes of a line or an object, no more than the limit and 64 NULs in a row; `given` begins the
    next one. on_corrupt: told of NULs, by offset."""

    def __init__(self, limit: int, on_corrupt: Callable[[int, str], object], begin: int = 0):
        self.limit, self.on_corrupt, self.begin = limit, on_corrupt, begin
        self.parts: list[bytes] = []
        self.held = self.size = 0

    def add(self, part: bytes) -> None:
        """More bytes of it."""
        self.size += len(part)
        if b"\0" in part:
            part = _RUN.sub(bytes(64), part)
        self.held += len(part)
        if self.held <= self.limit:
            self.parts.append(part)
        else:
            self.parts.clear()

    def given(self) -> Iterator[Line]:
        """What was added: parted at NULs around it, and at four in a row and more, since what
        stands on both sides of a hole is of two lines. Fewer may be a writer's."""
        offset, size = self.begin, self.size
        parts = [b"".join(self.parts) if self.held <= self.limit else None]
        self.begin, self.held, self.size, self.parts = offset + size, 0, 0, []
        holes = [*_HOLE.finditer(parts[0])] if parts[0] and b"\0" in parts[0] else []
        if not holes:
            yield offset, parts.pop(), size
            return
        line = parts.pop() or b""
        lost = size - len(line) + sum(len(hole[0]) for hole in holes)
        self.on_corrupt(offset + holes[0].start(), f"{lost} NUL bytes")
        begins = [0, *(hole.end() for hole in holes)]
        ends = [*(hole.start() for hole in holes), len(line)]
        for at, end in zip(begins, ends, strict=True):
            if at < end:
                yield offset + at, line[at:end], end - at


def first_line(file: BinaryIO, start: int, end: int | None) -> int | None:
    """Where the first line that begins in [start, end) does; None if one long line covers it all.

    Reads no further than `end`: a line of many ranges is not read again for each of them.
    """
    if start == 0:
        return 0
    at = start - 1  # a line that begins exactly at `start` has its newline there
    for chunk in decompressed_chunks(file, "plain", start=at):
        if (stop := chunk.find(b"\n")) >= 0:
            at += stop + 1
            return at if end is None or at < end else None
        at += len(chunk)
        if end is not None and at >= end:
            return None
    return None


def lines(
    chunks: Iterable[bytes],
    at: int,
    end: int | None,
    limit: int,
    on_corrupt: Callable[[int, str], object] = unheard,
) -> Iterator[Line]:
    """The lines, without their ends, that start in [at, end); offsets count from `at` in what the
    chunks hold. limit, on_corrupt: as of `Held`. A line is not held while it is worked on."""
    held = Held(limit, on_corrupt, at)
    for chunk in chunks:
        position, nuls = 0, b"\0" in chunk
        while (stop := chunk.find(b"\n", position)) >= 0:
            size = stop - position
            if held.size or nuls or size > limit:
                held.add(chunk[position:stop])
                yield from held.given()
            else:  # nearly all lines
                yield held.begin, chunk[position:stop], size
                held.begin += size
            held.begin += 1
            position = stop + 1
            if end is not None and held.begin >= end:
                return
        if position < len(chunk):
            held.add(chunk[position:])
    if held.size:
        yield from held.given()


def without_mark(line: bytes) -> bytes:
    """A line without the byte order marks that it begins with."""
    marks = _MARKS.match(line)
    return line[marks.end() :] if marks else line


def ranges(file: Any, target: int) -> list[tuple[int, int | None]]:
    """A plain file in ranges of bytes; a line belongs to the one in which it begins."""
    starts = [0]
    if file.codec == "plain" and file.size > target + target // 2:
        starts = list(range(0, file.size, target))
        if len(starts) > 1 and file.size - starts[-1] < target // 2:
            starts.pop()
    return list(zip(starts, [*starts[1:], None], strict=True))


def beginning(
    file: BinaryIO, codec: str | None, on_corrupt: Callable[[int, str], object] = unheard
) -> tuple[bytes, Iterator[bytes], str]:
    """(the first HEAD bytes, all chunks, the encoding) of a file's unpacked text; of another than
    UTF-8 this is made, in which offsets count then. on_corrupt: as of `decompressed_chunks`."""
    read: list[bytes] = []
    for chunk in decompressed_chunks(file, codec, unheard):
        read.append(bytes(chunk))
        if sum(map(len, read)) >= HEAD:
            break
    head, chunks = b"".join(read)[:HEAD], decompressed_chunks(file, codec, on_corrupt)
    encoding = encoding_of_file(head)
    if encoding == "utf-8":
        return head, chunks, encoding
    return b"".join(utf_8_of([head], encoding)), utf_8_of(chunks, encoding), encoding


def of_encoding(event: Event, encoding: str) -> Event:
    """An event of a file that is made UTF-8 of an encoding, which is named in it."""
    if isinstance(event, Corrupt) and encoding != "utf-8":
        event.what += f" ({encoding}: the offset is that in UTF-8)"
    elif isinstance(event, Row) and event.replaced:
        event.replaced = {encoding: sum(event.replaced.values())}
    return event
