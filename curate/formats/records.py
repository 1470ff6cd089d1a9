"""The records of a WARC or ARC file, every type of them, whole or damaged.

Framing follows ISO 28500 (WARC/0.18, 1.0, 1.1) and the ARC format of the Internet Archive, and
does not trust them: lengths may be missing or wrong, lines may end in LF alone, a record may span
several compressed members or share one with others, bytes may be missing. Three rules find the way
back, each of them reported as `Corrupt`:

- a compressed member that begins like a record always begins a record, whatever length the record
  before it declared;
- where no record follows a record's content, the content is searched for a record that a length
  too large has swallowed; otherwise the bytes up to the next record are garbage;
- a record without a usable length ends where the next one begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from curate.formats.compression import BREAK, DATA, START, Piece, members, sniff
from curate.formats.events import Corrupt

_WARC = rb"(?i:WARC)/\d{1,2}\.\d{1,3}[ \t]*\r?\n"
_ADDRESS = rb"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{3,45}|-|0)"
_ARC = (
    rb"(?:filedesc:[^\r\n]{0,8192}|[A-Za-z][A-Za-z0-9+.\-]{1,30}:[^\r\n]{1,8192}? "
    + _ADDRESS
    + rb" (?:\d{8,20}|null|-) \S{1,200}(?: \S{1,2048}){1,6})[ ]*\r?\n"
)
_WARC_START = re.compile(_WARC)
_ARC_START = re.compile(_ARC)
_SEARCH = {
    "warc": re.compile(rb"\n(?=" + _WARC + rb"[A-Za-z][A-Za-z0-9-]*:)"),
    "arc": re.compile(rb"\n(?=" + _ARC + rb")"),
}
_BLANK_LINE = re.compile(rb"\n\r?\n")
_LONGEST_START = 16384
"""No line that begins a record is looked for beyond this many bytes."""
_REREAD = 256 << 20
"""Bytes that may be read again per file because of wrong lengths; keeps hostile files linear."""


@dataclass(frozen=True)
class ReadLimits:
    """Bounds of memory, in bytes. A document over them is rejected by name, never cut."""

    record_bytes: int = 64 << 20
    payload_bytes: int = 64 << 20
    header_bytes: int = 1 << 18


@dataclass(slots=True)
class Record:
    """One record: its head, and its content where that is within the limits."""

    format: str
    """`warc` or `arc`."""
    type: str
    """Lower case; of ARC records `filedesc` or `response`."""
    fields: dict[bytes, bytes]
    """Named fields, names in lower case; the first of several with one name. ARC fields are
    stored under their WARC names."""
    offset: int
    content: bytes | None = None
    """None if over the limit; `beginning` then holds its first 64 KiB."""
    beginning: bytes = b""
    size: int = 0
    """Bytes of content found."""
    declared: int | None = None
    """Bytes of content that the record says it has."""
    damage: str | None = None
    """Why content is missing or not to be trusted."""
    problems: list[Corrupt] = field(default_factory=list)

    def get(self, name: bytes) -> str | None:
        """A field as text, or None where it is missing or empty."""
        value = self.fields.get(name)
        return value.decode("utf-8", "replace") if value else None


def begins_record(data: bytes) -> bool:
    """Whether `data` (the beginning of a member) begins with a WARC or ARC record."""
    if data[:5].upper() == b"WARC/":
        return _WARC_START.match(data) is not None
    return _ARC_START.match(data[:_LONGEST_START]) is not None


class _Stream:
    """Decompressed bytes in runs: a run ends at a member that begins a record, at damage, at the
    end of the file. `buf[pos:]` is what is at hand of the present run."""

    def __init__(self, file: BinaryIO, start: int, end: int | None, codec: str) -> None:
        self.file, self.codec, self.end = file, codec, end
        self.plain = codec == "plain"
        self.reread = _REREAD
        self.open(start)

    def open(self, start: int) -> None:
        self.pieces = members(self.file, start, self.end, self.codec)
        self.buf, self.pos = b"", 0
        self.at = start
        """Offset of buf[0] (plain), of the member that the newest data came from (compressed)."""
        self.older: list[tuple[int, int]] = []  # (bytes of buf that came from it, its offset)
        self.ahead: list[Piece] = []
        self.stop: str = ""  # why the run ended: "", record, inside, between, eof
        self.broken: Corrupt | None = None

    def offset(self) -> int:
        """Where in the file the byte at `pos` is: exact (plain), its member's start (else)."""
        if self.plain:
            return self.at + self.pos
        for until, offset in self.older:
            if self.pos < until:
                return offset
        return self.at

    def more(self) -> bool:
        """Appends to the run; False (and `stop` says why) where the run ends."""
        while not self.stop:
            piece = self.ahead.pop(0) if self.ahead else next(self.pieces, None)
            if piece is None:
                self.stop = "eof"
            elif piece.kind == DATA:
                self._append(piece.data)
                return True
            elif piece.kind == START:
                head = self._peek()
                if begins_record(head):
                    self.stop, self.next_at = "record", piece.offset
                else:
                    self._enter(piece.offset)
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
            self.older = [(n - self.pos, o) for n, o in self.older if n > self.pos]
            self.buf, self.pos = self.buf[self.pos :] + data, 0

    def _enter(self, offset: int) -> None:
        if self.pos < len(self.buf):
            self.older.append((len(self.buf), self.at))
        self.at = offset

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
            if len(head) >= _LONGEST_START or (len(head) > 64 and head[:5].upper() == b"WARC/"):
                return head

    def next_run(self) -> bool:
        """Goes on behind the end of a run; False at the end of the file."""
        if self.stop == "eof":
            return False
        if self.stop == "record":
            self.at = self.next_at
        self.buf, self.pos, self.older, self.stop, self.broken = b"", 0, [], "", None
        return True

    def fill(self, size: int) -> bool:
        """Makes `size` bytes available from `pos` on; False if the run has fewer."""
        while len(self.buf) - self.pos < size:
            if not self.more():
                return False
        return True

    def push_back(self, data: bytes) -> None:
        """Puts bytes that were taken back in front (their offsets become approximate)."""
        self.reread -= len(data)
        if self.plain:
            self.at += self.pos - len(data)
        self.buf, self.pos = data + self.buf[self.pos :], 0
        self.older = []


def records(
    file: BinaryIO, start: int = 0, end: int | None = None, limits: ReadLimits = ReadLimits()
) -> Iterator[Record | Corrupt]:
    """Every record that starts in [start, end), and every stretch of bytes that is none.

    `start` and `end` are offsets in the file as stored, at places that
    `compression.verified_boundaries` gave. A record with `damage` is delivered like the others.
    """
    codec = sniff(file)
    file.seek(start)
    head = file.read(8)
    if codec == "plain" and head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        yield Corrupt(start, "a zip file (a WACZ?), not a web archive")
        return
    if codec == "plain" and start == 0 and head and not head.isascii():
        codec = _damaged_start(file) or codec
    yield from _Reader(_Stream(file, start, end, codec), end, limits).run()


def _damaged_start(file: BinaryIO) -> str | None:
    """The kind of compression of an archive whose first bytes are damaged, or None."""
    from curate.formats.codecs import MAGIC, Source
    from curate.formats.compression import _Chain

    source = Source(file)
    for codec, magic in MAGIC.items():
        found = source.find(magic, 0)
        if found is not None and found < 64 << 20 and _Chain(source, codec).resume(0, 0):
            return codec
    return None


class _Reader:
    def __init__(self, stream: _Stream, end: int | None, limits: ReadLimits) -> None:
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
            yield record
            yield from problems

    def _skip_newlines(self) -> None:
        stream = self.stream
        while True:
            buf, pos = stream.buf, stream.pos
            while pos < len(buf) and buf[pos] in b"\r\n":
                pos += 1
            stream.pos = pos
            if pos < len(buf) or not stream.more():
                return

    # Heads

    def _head(self, offset: int) -> Record | None:
        """Reads the head of a record at `pos`; None (and nothing consumed) if none stands there."""
        stream = self.stream
        if stream.buf[stream.pos : stream.pos + 5].upper() == b"WARC/":
            if _WARC_START.match(stream.buf, stream.pos) is None:
                return None
            limit, size = self.limits.header_bytes, 4096
            while True:
                stream.fill(size)
                found = _BLANK_LINE.search(stream.buf, stream.pos, stream.pos + limit)
                if found or len(stream.buf) - stream.pos < size or size >= limit:
                    break
                size = min(size * 4, limit)
            if found is None:
                return None
            block = stream.buf[stream.pos : found.start()]
            stream.pos = found.end()
            return _warc_head(block, offset)
        newline = stream.buf.find(b"\n", stream.pos)
        if newline < 0:
            stream.fill(_LONGEST_START)
        line = _ARC_START.match(stream.buf, stream.pos, stream.pos + _LONGEST_START)
        if line is None:
            return None
        stream.pos = line.end()
        return _arc_head(line.group(), offset)

    def _garbage(self, offset: int) -> Iterator[Corrupt]:
        """Passes over bytes that are no record, up to the next one."""
        stream = self.stream
        what, size = "bytes that are no record", 0
        while True:
            found = self._search(stream.buf, stream.pos)
            if found is not None:
                size += found - stream.pos
                stream.pos = found
                break
            # Keep a tail that may hold the beginning of a record.
            keep = min(
                _LONGEST_START if self.format == "arc" else 256, len(stream.buf) - stream.pos
            )
            size += len(stream.buf) - stream.pos - keep
            stream.pos = len(stream.buf) - keep
            if self.end is not None and stream.plain and stream.offset() >= self.end:
                break
            if not stream.more():
                size += keep
                stream.pos = len(stream.buf)
                break
        yield Corrupt(offset, f"{what}: {size} bytes")

    def _search(self, data: bytes, pos: int) -> int | None:
        """Where the next record's head begins behind `pos`, or None."""
        kinds = [self.format] if self.format else ["warc", "arc"]
        starts = [m.end() for m in (_SEARCH[kind].search(data, pos) for kind in kinds) if m]
        return min(starts) if starts else None

    # Content

    def _content(self, record: Record) -> None:
        """Reads a record's content and finds out where it really ends."""
        stream, limit = self.stream, self.limits.record_bytes
        if record.declared is None:
            self._until_next(record)
            return
        at = stream.at + stream.pos
        left, parts, kept = record.declared, [], 0
        keep = limit if record.declared <= limit else 64 << 10
        while left:
            part = stream.buf[stream.pos : stream.pos + left]
            stream.pos += len(part)
            left -= len(part)
            if kept < keep:
                parts.append(part)
                kept += len(part)
            if left and not stream.more():
                break
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        record.size = record.declared - left
        whole = record.size == kept
        if left or not self._in_step():
            found = _SEARCH[record.format].search(data) if stream.reread > 0 else None
            if found and stream.stop != "inside":
                record.problems.append(
                    Corrupt(
                        record.offset,
                        f"declares {record.declared} bytes of content, but the next record"
                        f" begins after {found.end()}",
                    )
                )
                tail = data[found.end() :]
                data = data[: found.start() + 1]
                record.size = len(data)
                if whole:
                    stream.push_back(tail)
                elif stream.plain:
                    stream.reread -= kept
                    stream.open(at + found.end())
                whole = True
            elif left:
                self._cut_short(record, left)
        if stream.stop == "inside" and stream.pos == len(stream.buf) and stream.broken:
            record.damage = stream.broken.what
        if whole and record.size <= limit:
            record.content = data
        else:
            record.beginning = data[: 64 << 10]

    def _cut_short(self, record: Record, left: int) -> None:
        stream = self.stream
        what = f"{left} of {record.declared} bytes of content are missing"
        if stream.stop != "inside":
            record.problems.append(Corrupt(record.offset, what))
        if stream.stop != "record" and (stream.plain or stream.stop != "eof"):
            record.damage = what

    def _in_step(self) -> bool:
        """Whether a record, or the end of the run, follows here."""
        self._skip_newlines()
        stream = self.stream
        if not stream.fill(5) and stream.pos == len(stream.buf):
            return True
        if stream.buf[stream.pos : stream.pos + 5].upper() == b"WARC/":
            return True
        if self.format != "arc":
            return False
        if stream.buf.find(b"\n", stream.pos) < 0:
            stream.fill(_LONGEST_START)
        return _ARC_START.match(stream.buf, stream.pos) is not None

    def _until_next(self, record: Record) -> None:
        """Reads the content of a record without a usable length."""
        stream, limit = self.stream, self.limits.record_bytes
        parts: list[bytes] = []
        stream.pos = max(stream.pos - 1, 0)  # the newline before an empty content's successor
        kept, skipped = 0, 1
        while True:
            found = self._search(stream.buf, stream.pos)
            tail = min(_LONGEST_START if record.format == "arc" else 256, len(stream.buf))
            until = found if found is not None else max(len(stream.buf) - tail, stream.pos)
            part = stream.buf[stream.pos : until]
            stream.pos = until
            record.size += len(part)
            if kept <= limit:
                parts.append(part)
                kept += len(part)
            if found is not None:
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


def _warc_head(block: bytes, offset: int) -> Record:
    fields: dict[bytes, bytes] = {}
    name = b""
    for line in block.split(b"\n")[1:]:
        if line[:1] in (b" ", b"\t"):  # obsolete folding
            if name:
                fields[name] = (fields[name] + b" " + line.strip()).strip()
            continue
        key, colon, value = line.partition(b":")
        name = key.strip().lower() if colon else b""
        if name in fields:
            name = b""
        if name:
            fields[name] = value.strip()
    kind = fields.get(b"warc-type", b"").decode("utf-8", "replace").strip().lower()
    return Record(
        "warc", kind, fields, offset, declared=_length(fields.get(b"content-length", b""))
    )


def _arc_head(line: bytes, offset: int) -> Record:
    """URL IP date type length (version 1), or URL IP date type code checksum location offset
    file length (version 2). A URL may hold spaces."""
    words = line.strip().split(b" ")
    if line.startswith(b"filedesc:"):
        return Record("arc", "filedesc", {}, offset, declared=_length(words[-1]))
    count = 9 if len(words) >= 10 and _is_version_2(words) else 4
    url = b" ".join(words[:-count])
    date, mime = words[-count + 1], words[-count + 2]
    fields = {
        b"warc-target-uri": url,
        b"warc-date": date,
        b"content-type": b"" if mime in (b"-", b"no-type", b"unk") else mime,
    }
    return Record("arc", "response", fields, offset, declared=_length(words[-1]))


def _is_version_2(words: list[bytes]) -> bool:
    return re.fullmatch(rb"\d{3}|-", words[-6]) is not None and (
        re.fullmatch(rb"\d{8,20}|null|-", words[-8]) is not None
    )


def _length(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) < 19 else None
