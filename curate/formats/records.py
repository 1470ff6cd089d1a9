"""The records of a WARC or ARC file, of every type, whole or damaged.

Framing follows ISO 28500 (WARC/0.18, 1.0, 1.1) and the ARC format of the Internet Archive. Lengths
may be wrong, and bytes may be missing. Three rules then find the next record. Whenever one of them
is used, a `Corrupt` is reported:

- a compressed member that begins like a record always begins a record;
- if no record follows a record's content, the content is searched for a record that is inside it
  because the stated length is too large; otherwise the bytes up to the next record are garbage;
- a record without a usable length ends where the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from curate.formats.compression import (
    BREAK,
    DATA,
    MAGIC,
    START,
    Piece,
    first_member,
    members,
    sniff,
)
from curate.formats.events import Corrupt
from curate.formats.heads import (
    ARC_START,
    BLANK_LINE,
    END_OF_RECORD,
    HEAD_BEGINS,
    LONGEST_START,
    NEXT_RECORD,
    WARC_START,
    Record,
    arc_head,
    begins_record,
    warc_head,
)

NULS = "NUL bytes"
_REREAD = 256 << 20
"""Bytes per file that may be read again because of wrong lengths; keeps hostile files linear."""


class Runs:
    """Decompressed bytes of an archive, read in runs (unbroken stretches). A run ends before a
    member that begins with a record, at damage, or at the end of the file. `buf[pos:]` are the
    available bytes of the current run."""

    def __init__(self, file: BinaryIO, start: int, end: int | None, codec: str) -> None:
        self.file, self.codec, self.end = file, codec, end
        self.plain = codec == "plain"
        self.reread = _REREAD
        self.open(start)

    def open(self, start: int) -> None:
        self.pieces = members(self.file, start, self.end, self.codec)
        self.buf, self.pos = b"", 0
        self.at = start
        """Offset of buf[0] (plain), or of the newest data's member (compressed)."""
        self.older: list[tuple[int, int]] = []  # (where its data ends in buf, its offset)
        self.ahead: list[Piece] = []
        self.entering: int | None = None  # offset of the next data's member, if it is a new one
        self.stop: str = ""  # why the run ended: "", record, inside, between, eof
        self.broken: Corrupt | None = None

    def offset(self) -> int:
        """Return the file offset of the byte at `pos`, or of the compressed member around it."""
        if self.plain:
            return self.at + self.pos
        for until, offset in self.older:
            if self.pos < until:
                return offset
        return self.at

    def more(self) -> bool:
        """Append data to `buf` and return True. If the current run (an unbroken stretch of data)
        has ended, return False; `stop` says why it ended."""
        while not self.stop:
            piece = self.ahead.pop(0) if self.ahead else next(self.pieces, None)
            if piece is None:
                self.stop = "eof"
            elif piece.kind == DATA:
                if self.entering is not None:  # a member without data is ignored
                    self._enter(self.entering)
                self._append(piece.data)
                return True
            elif piece.kind == START:
                head = self._peek()
                if begins_record(head):
                    self.stop, self.next_at = "record", piece.offset
                else:
                    self.entering = piece.offset
            elif piece.kind == BREAK:
                self.stop = "inside" if piece.inside else "between"
                self.broken = Corrupt(piece.offset, piece.what)
        return False

    def _append(self, data: bytes) -> None:
        if self.pos == len(self.buf):
            if self.plain:
                self.at += self.pos
            self.buf, self.pos, self.older = data, 0, []
        else:
            if self.plain:
                self.at += self.pos
            if self.pos and self.older:
                self.older = [(n - self.pos, o) for n, o in self.older if n > self.pos]
            self.buf, self.pos = self.buf[self.pos :] + data, 0

    def _enter(self, offset: int) -> None:
        if self.pos < len(self.buf):
            self.older.append((len(self.buf), self.at))
            if len(self.older) > 256:  # members of a few bytes: offsets become approximate
                del self.older[128:-1]
        self.at, self.entering = offset, None

    def _peek(self) -> bytes:
        head = b""
        while True:
            piece = next(self.pieces, None)
            if piece is None:
                return head
            self.ahead.append(piece)
            if piece.kind != DATA:
                return head
            head += piece.data
            if len(head) >= LONGEST_START or (len(head) > 64 and head[:5].upper() == b"WARC/"):
                return head

    def next_run(self) -> bool:
        """Go on to the next run of bytes and return True; return False at the end of the file."""
        if self.stop == "eof":
            return False
        if self.stop == "record":
            self.at = self.next_at
        self.buf, self.pos, self.older, self.stop, self.broken = b"", 0, [], "", None
        self.entering = None
        return True

    def fill(self, size: int) -> bool:
        """Make `size` bytes available from buf[pos] on; return False if the current run has
        fewer."""
        while len(self.buf) - self.pos < size:
            if not self.more():
                return False
        return True

    def push_back(self, data: bytes) -> None:
        """Insert bytes before `pos`, to be read again; their offsets become approximate."""
        self.reread -= len(data)
        if self.plain:
            self.at += self.pos - len(data)
        self.buf, self.pos = data + self.buf[self.pos :], 0
        self.older = []


__all__ = ["ReadLimits", "Record", "begins_record", "records"]


@dataclass(frozen=True)
class ReadLimits:
    """Bounds of memory in bytes. A document above a bound is rejected with a reason, never cut."""

    record_bytes: int = 64 << 20
    payload_bytes: int = 64 << 20
    header_bytes: int = 1 << 18
    digests: bool = False
    """Compare the contents of documents with the digests that their records state."""


def records(
    file: BinaryIO, start: int = 0, end: int | None = None, limits: ReadLimits = ReadLimits()
) -> Iterator[Record | Corrupt]:
    """Yield every record that starts in [start, end), including damaged records, and a `Corrupt`
    for every other stretch of bytes. `start` and `end` are from `verified_boundaries`."""
    codec = sniff(file)
    file.seek(start)
    head = file.read(8)
    if codec == "plain" and head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        yield Corrupt(start, "a zip file (a WACZ?), not a web archive")
        return
    if codec == "plain" and start == 0 and head and not head.isascii():
        codec = _damaged_start(file) or codec
    yield from _Reader(Runs(file, start, end, codec), end, limits).run()


def _damaged_start(file: BinaryIO) -> str | None:
    for codec in MAGIC:
        start_of_member = first_member(file, codec)
        if start_of_member is not None and begins_record(
            _first_bytes(file, start_of_member, codec)
        ):
            return codec
    return None


def _first_bytes(file: BinaryIO, at: int, codec: str) -> bytes:
    data = b""
    for piece in members(file, at, at + 1, codec):
        data += piece.data
        if len(data) >= LONGEST_START:
            break
    return data


class _Reader:
    def __init__(self, stream: Runs, end: int | None, limits: ReadLimits) -> None:
        self.stream, self.end, self.limits = stream, end, limits
        self.format = ""

    def run(self) -> Iterator[Record | Corrupt]:
        stream = self.stream
        while True:
            self._skip_newlines()
            stream.fill(64)
            if stream.pos == len(stream.buf):
                if stream.broken:
                    yield stream.broken
                if stream.stop == "record":
                    self.format = ""
                if not stream.next_run():
                    return
                continue
            offset = stream.offset()
            if self.end is not None and offset >= self.end:
                return
            record = self._head(offset)
            if record is None:
                yield from self._garbage(offset)
                continue
            self.format = record.format
            self._content(record)
            problems, record.problems = record.problems, []
            problems += self._garbage_after(record)
            yield record
            yield from problems

    def _garbage_after(self, record: Record) -> list[Corrupt]:
        """Skip the garbage after a record and return it as damage. `record.damage` is set, too, if
        the garbage shows damage of the record: a wrong checksum of their common compressed member,
        or NUL bytes at the end of the record and in the garbage."""
        stream = self.stream
        if record.damage or self._at_record():
            return []
        member = stream.at
        garbage = list(self._garbage(stream.offset()))
        broken = stream.broken if stream.stop == "inside" else None
        if broken and stream.pos == len(stream.buf) and broken.offset == member:
            record.damage = broken.what
        elif garbage and garbage[0].what.endswith(NULS) and (record.content or b"")[-1:] == b"\0":
            record.damage = f"its content ends in {garbage[0].what}"
        return garbage

    def _skip_newlines(self) -> bytes:
        stream, passed = self.stream, b""
        while True:
            buf, pos = stream.buf, stream.pos
            while pos < len(buf) and buf[pos] in b"\r\n":
                pos += 1
            passed = (passed + buf[stream.pos : pos])[-64:]
            stream.pos = pos
            if pos < len(buf) or not stream.more():
                return passed

    # Heads

    def _head(self, offset: int) -> Record | None:
        stream = self.stream
        if stream.buf[stream.pos : stream.pos + 5].upper() == b"WARC/":
            if WARC_START.match(stream.buf, stream.pos) is None:
                return None
            limit, size = self.limits.header_bytes, 4096
            while True:
                stream.fill(size)
                match = BLANK_LINE.search(stream.buf, stream.pos, stream.pos + size)
                until = match.end() if match else min(len(stream.buf), stream.pos + size)
                following = NEXT_RECORD["warc"].search(stream.buf, stream.pos, until)
                if match or following or len(stream.buf) - stream.pos < size or size >= limit:
                    break
                size = min(size * 4, limit)
            if match is None and following is None and not stream.stop:
                return None  # longer than a head may be
            block = stream.buf[stream.pos : following.end() if following else until]
            if following is None and match is not None:
                stream.pos = until
                return warc_head(block, offset)
            if not HEAD_BEGINS.match(block):
                return None
            stream.pos += len(block)
            record = warc_head(block, offset)
            record.damage = "the record ends inside its head"
            if stream.stop != "inside":
                record.problems.append(Corrupt(offset, record.damage))
            return record
        if self.format == "warc":
            return None
        if stream.buf.find(b"\n", stream.pos) < 0:
            stream.fill(LONGEST_START)
        line = ARC_START.match(stream.buf, stream.pos, stream.pos + LONGEST_START)
        if line is None:
            return None
        stream.pos = line.end()
        return arc_head(line.group(), offset)

    def _garbage(self, offset: int) -> Iterator[Corrupt]:
        stream = self.stream
        flaw, size = "bytes that are no record", 0
        while stream.buf.startswith(b"\0", stream.pos):  # runs of NULs may be long
            nuls = len(stream.buf) - stream.pos - len(stream.buf[stream.pos :].lstrip(b"\0"))
            stream.pos, size = stream.pos + nuls, size + nuls
            if stream.pos < len(stream.buf) or not stream.more():
                break
        stream.fill(LONGEST_START if size else 0)
        behind = stream.buf[stream.pos : stream.pos + LONGEST_START]
        if size and (not behind or begins_record(behind)):
            yield Corrupt(offset, f"{size} {NULS}")
            return
        while True:
            start = self._search(stream.buf, stream.pos)
            if start is not None:
                size += start - stream.pos
                stream.pos = start
                break
            # Keep a tail that may hold the beginning of a record.
            keep = min(LONGEST_START if self.format == "arc" else 256, len(stream.buf) - stream.pos)
            size += len(stream.buf) - stream.pos - keep
            stream.pos = len(stream.buf) - keep
            if self.end is not None and stream.plain and stream.offset() >= self.end:
                break
            if not stream.more():
                size += keep
                stream.pos = len(stream.buf)
                break
        yield Corrupt(offset, f"{flaw}: {size} bytes")

    def _search(self, data: bytes, pos: int) -> int | None:
        kinds = [self.format] if self.format else ["warc", "arc"]
        starts = [m.end() for m in (NEXT_RECORD[kind].search(data, pos) for kind in kinds) if m]
        return min(starts) if starts else None

    # Content

    def _content(self, record: Record) -> None:
        stream, limit = self.stream, self.limits.record_bytes
        if record.damage:  # no content follows a head that was cut
            record.content = b""
            return
        if record.declared is None:
            self._until_next(record)
            return
        begins = stream.at + stream.pos
        missing, parts, kept, swallowed = record.declared, [], 0, None
        whole = record.declared <= limit
        while missing:
            part = stream.buf[stream.pos : stream.pos + missing]
            stream.pos += len(part)
            if whole or kept < 64 << 10:
                parts.append(part)
                kept += len(part)
            if not whole and stream.plain and swallowed is None:
                match = NEXT_RECORD[record.format].search(part)
                swallowed = record.declared - missing + match.end() if match else None
            missing -= len(part)
            if missing and not stream.more():
                break
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        record.size = record.declared - missing
        last_member = stream.at
        newlines = b"" if missing else self._skip_newlines()
        if (missing or not self._at_record()) and stream.reread > 0 and stream.stop != "inside":
            # Only a part of the swallowed head may lie within the declared content.
            around = data + newlines + stream.buf[stream.pos : stream.pos + LONGEST_START]
            match = NEXT_RECORD[record.format].search(around) if whole else None
            if match and match.end() < len(data):
                swallowed = match.end()
        else:
            swallowed = None
        if swallowed is not None:
            flaw = f"declares {record.declared} bytes, but the next record begins after {swallowed}"
            record.problems.append(Corrupt(record.offset, flaw))
            record.size = swallowed
            if whole:
                stream.push_back(data[swallowed:] + newlines)
            else:
                stream.reread -= record.declared - missing
                stream.open(begins + swallowed)
            content = data[:swallowed].rstrip(b"\0")
            if whole and len(content) < swallowed:  # cut by a run of NULs
                record.damage = flaw
            data = END_OF_RECORD.sub(b"", content)
            if whole or len(data) < swallowed <= len(data) + 4:
                record.size = len(data)
        elif missing:
            self._cut_short(record, missing)
        broken = stream.broken if stream.stop == "inside" else None
        if broken and stream.pos == len(stream.buf) and (missing or broken.offset == last_member):
            record.damage = broken.what
        if record.size == len(data) and record.size <= limit:
            record.content = data
        else:
            record.beginning = data[: 64 << 10]

    def _cut_short(self, record: Record, missing: int) -> None:
        stream = self.stream
        flaw = f"{missing} of {record.declared} bytes of content are missing"
        if stream.stop != "inside":
            record.problems.append(Corrupt(record.offset, flaw))
        if stream.stop != "record" and (stream.plain or stream.stop != "eof"):
            record.damage, record.missing = flaw, missing

    def _at_record(self) -> bool:
        stream = self.stream
        if not stream.fill(5) and stream.pos == len(stream.buf):
            return True
        if stream.buf[stream.pos : stream.pos + 5].upper() == b"WARC/":
            return True
        if self.format != "arc":
            return False
        if stream.buf.find(b"\n", stream.pos) < 0:
            stream.fill(LONGEST_START)
        return ARC_START.match(stream.buf, stream.pos) is not None

    def _until_next(self, record: Record) -> None:
        stream, limit = self.stream, self.limits.record_bytes
        parts: list[bytes] = []
        stream.pos = max(stream.pos - 1, 0)  # the newline before an empty content's successor
        kept, skipped = 0, 1
        while True:
            start = self._search(stream.buf, stream.pos)
            tail = min(LONGEST_START if record.format == "arc" else 256, len(stream.buf))
            until = start if start is not None else max(len(stream.buf) - tail, stream.pos)
            part = stream.buf[stream.pos : until]
            stream.pos = until
            record.size += len(part)
            if kept <= limit:
                parts.append(part)
                kept += len(part)
            if start is not None:
                break
            if not stream.more():
                part = stream.buf[stream.pos :]
                stream.pos = len(stream.buf)
                record.size += len(part)
                parts.append(part)
                kept += len(part)
                break
        data = b"".join(parts)[skipped:]
        record.size = max(record.size - skipped, 0)
        if stream.stop == "inside" and stream.pos == len(stream.buf) and stream.broken:
            record.damage = stream.broken.what
        if record.size > limit:
            record.beginning = data[: 64 << 10]
            return
        record.content = data.rstrip(b"\r\n")
        record.size = len(record.content)
        if record.content:
            record.problems.append(
                Corrupt(record.offset, "no usable length: content read up to the next record")
            )
