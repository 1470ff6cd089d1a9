"""Lines of text files, and the stray bytes in joined or badly resumed files.

Byte order marks, which `cat` leaves inside a joined file, are skipped at the beginning of a line.
NULs, which bad downloads leave, are reported with place and number; long runs are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from curate.formats.compression import decompressed_chunks
from curate.formats.events import Corrupt, Event, Row
from curate.text.decoding import encoding_of_file, utf_8_of

BOM = b"\xef\xbb\xbf"
HEAD = 1 << 20  # bytes by which a file's layout is recognised
Line = tuple[int, bytes | None, int]
"""(offset, bytes or None if they are more than the limit, size in the file)."""

_MARKS = re.compile(rb"(?:\xef\xbb\xbf)+")
_RUN = re.compile(rb"\0{64,}")
_HOLE = re.compile(rb"\A\0+|\0{4,}|\0+\r*\Z")


def ignore_damage(offset: int, what: str) -> None:
    """Do nothing: for readers whose caller does not report damage."""


class Held:
    """A buffer for the line or object that is being read. A line or object of over `limit` bytes is
    not kept. `flush` yields the content, begins the next line or object, and calls `on_corrupt`
    with the offset of NULs that `flush` removed. Until then, at most 64 NULs in a row are kept."""

    def __init__(self, limit: int, on_corrupt: Callable[[int, str], object], begin: int = 0):
        self.limit, self.on_corrupt, self.begin = limit, on_corrupt, begin
        self.parts: list[bytes] = []
        self.held = self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if b"\0" in part:
            part = _RUN.sub(bytes(64), part)
        self.held += len(part)
        if self.held <= self.limit:
            self.parts.append(part)
        else:
            self.parts.clear()

    def flush(self) -> Iterator[Line]:
        """Yield the bytes added since the last call, without the NULs at both ends, and split at
        four or more NULs in a row, as the bytes around such a gap belong to different lines."""
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
    """Return the offset of the first line that begins in [start, end), or None. Nothing after `end`
    is read, so a line over many ranges is not read again for each range."""
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
    on_corrupt: Callable[[int, str], object] = ignore_damage,
) -> Iterator[Line]:
    """Yield the lines that start in [at, end), without their line ends. `at` is the offset of the
    first byte of `chunks`. A line is not kept after it is yielded."""
    held = Held(limit, on_corrupt, at)
    for chunk in chunks:
        position, nuls = 0, b"\0" in chunk
        while (stop := chunk.find(b"\n", position)) >= 0:
            size = stop - position
            if held.size or nuls or size > limit:
                held.add(chunk[position:stop])
                yield from held.flush()
            else:  # the case of nearly all lines
                yield held.begin, chunk[position:stop], size
                held.begin += size
            held.begin += 1
            position = stop + 1
            if end is not None and held.begin >= end:
                return
        if position < len(chunk):
            held.add(chunk[position:])
    if held.size:
        yield from held.flush()


def without_bom(line: bytes) -> bytes:
    """Return a line without the byte order marks at its beginning."""
    marks = _MARKS.match(line)
    return line[marks.end() :] if marks else line


def ranges(file: Any, target: int) -> list[tuple[int, int | None]]:
    """Cut a plain file into byte ranges; a line belongs to the range in which it begins."""
    starts = [0]
    if file.codec == "plain" and file.size > target + target // 2:
        starts = list(range(0, file.size, target))
        if len(starts) > 1 and file.size - starts[-1] < target // 2:
            starts.pop()
    return list(zip(starts, [*starts[1:], None], strict=True))


def beginning(
    file: BinaryIO, codec: str | None, on_corrupt: Callable[[int, str], object] = ignore_damage
) -> tuple[bytes, Iterator[bytes], str]:
    """Return the first HEAD bytes of a file's unpacked text, all its chunks, and its encoding's
    name. Text that is not UTF-8 is converted; positions of lines are those after conversion."""
    read: list[bytes] = []
    for chunk in decompressed_chunks(file, codec, ignore_damage):
        read.append(bytes(chunk))
        if sum(map(len, read)) >= HEAD:
            break
    head, chunks = b"".join(read)[:HEAD], decompressed_chunks(file, codec, on_corrupt)
    encoding = encoding_of_file(head)
    if encoding == "utf-8":
        return head, chunks, encoding
    return b"".join(utf_8_of([head], encoding)), utf_8_of(chunks, encoding), encoding


def name_encoding(event: Event, encoding: str) -> Event:
    """Add the encoding's name to a document or damage, if the file was not UTF-8."""
    if isinstance(event, Corrupt) and encoding != "utf-8":
        event.what += f" (offset after conversion from {encoding} to UTF-8)"
    elif isinstance(event, Row) and event.replaced:
        event.replaced = {encoding: sum(event.replaced.values())}
    return event
