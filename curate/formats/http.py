"""HTTP responses as crawlers stored them, including malformed heads and bodies.

The limit on the size of a body is applied while the body is decoded, not afterwards. Wrong
declarations by servers (chunked, gzip) are recognised. The HTTP header Content-Length is not used,
because the archive's record states the body's length.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from curate.formats.mime import GZIP, looks_like_text

_STATUS = re.compile(rb"(?:HTTP|ICY)(?:/(\d+(?:\.\d+)?))?[ \t]+(\d{3})(?!\d)[ \t]*([^\r\n]*)", re.I)
_BLANK_LINE = re.compile(rb"\n\r*\n")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]{0,4096})?\r?\n")
_CHARSET = re.compile(r"""charset\s*=[\s"']*([A-Za-z0-9_.:+-]+)""", re.I)
_MIME = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+")
_MAX_HEAD = 1 << 18
OPT_OUT_HEADERS = ("x-robots-tag", "tdm-reservation")
_STEP = 32 << 10  # bytes of a body given to zlib at a time
_MOST_PACKED = 3  # the most gzip layers removed that the head does not declare
_NO_ENCODING = {"", "identity", "none", "binary", "8bit", "7bit", "utf-8", "chunked"}


@dataclass(slots=True)
class Head:
    """The status line and header fields of a response."""

    status: int | None
    reason: str
    fields: dict[str, list[str]]
    """Names in lower case, values in order."""
    length: int
    """Bytes of the head, including the blank line."""

    def get(self, name: str) -> str | None:
        """Return all values of a header field, joined with commas, or None if it is absent."""
        values = self.fields.get(name)
        return ", ".join(values) if values else None

    def first(self, name: str) -> str | None:
        values = self.fields.get(name)
        return values[0] if values else None

    def lines(self, names: tuple[str, ...]) -> str | None:
        """Return the header fields with these names, one `name: value` per line, or None."""
        lines = [f"{name}: {value}" for name in names for value in self.fields.get(name, ())]
        return "\n".join(lines) if lines else None


@dataclass(slots=True)
class Body:
    """The body of a response after decoding."""

    status: str
    """`ok`, `too_large` (over the limit; no data) or `undecodable` (`data` is as stored)."""
    data: bytes = b""
    size: int = 0
    """Bytes of data; for `too_large` the bytes decoded when the limit was passed."""
    notes: list[str] = field(default_factory=list)
    """Differences from what is declared, or why the body cannot be decoded."""

    @property
    def detail(self) -> str | None:
        return "; ".join(self.notes) or None


def parse_head(data: bytes) -> Head | None:
    """Return the head of a response; None if `data` does not begin with a status line. A missing
    status text or blank line, LF line ends, obsolete folding and bad fields are accepted."""
    status = _STATUS.match(data)
    if status is None:
        return None
    match = _BLANK_LINE.search(data, 0, _MAX_HEAD)
    end = match.end() if match else _end_without_blank_line(data, status.end())
    fields: dict[str, list[str]] = {}
    values: list[str] = []
    block = data[status.end() : end].decode("utf-8", "surrogateescape")
    for line in block.split("\n"):
        if line[:1] in (" ", "\t"):
            if values and line.strip():
                values[-1] = f"{values[-1]} {line.strip()}".strip()
            continue
        name, colon, value = line.partition(":")
        if colon:
            values = fields.setdefault(name.strip().lower(), [])
            values.append(_clean(value.strip()))
    reason = _clean(status.group(3).decode("utf-8", "surrogateescape").strip())
    return Head(int(status.group(2)), reason, fields, end)


def _clean(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _end_without_blank_line(data: bytes, at: int) -> int:
    end = data.find(b"\n", at) + 1
    while 0 < end < min(len(data), _MAX_HEAD):
        line_end = data.find(b"\n", end, end + 65536)
        line = data[end : line_end if line_end >= 0 else min(len(data), end + 65536)]
        if b":" not in line or line[:1] in b"<{":
            break
        end = line_end + 1 if line_end >= 0 else end + len(line)
    return end or len(data)


def content_type(value: str | None) -> tuple[str | None, str | None]:
    """Return (MIME type, charset) of a Content-Type in lower case; None if missing or malformed."""
    if not value:
        return None, None
    mime = value.split(";", 1)[0].split(",", 1)[0].strip().strip("\"'").lower()
    charset = _CHARSET.search(value)
    return (
        mime if _MIME.fullmatch(mime) else None,
        charset.group(1).lower() if charset else None,
    )


def decode_body(head: Head | None, body: bytes, limit: int) -> Body:
    """Undo a body's transfer and content encodings, and undeclared gzip, up to `limit` bytes."""
    notes: list[str] = []
    encodings: list[str] = []
    if head is not None:
        transfer = _tokens(head.get("transfer-encoding"))
        if "chunked" in transfer:
            body = _dechunk(body, notes)
        encodings = [*_tokens(head.get("content-encoding")), *transfer]
    for name in reversed(encodings):
        if name in _NO_ENCODING or not body:
            continue
        decode = _DECODERS.get(name)
        if decode is None:
            if looks_like_text(body):
                notes.append(f"says {name}, is plain")
                continue
            return Body("undecodable", body, len(body), [*notes, f"unknown encoding {name}"])
        data, problem = decode(body, limit)
        if len(data) > limit:
            return Body("too_large", b"", len(data), notes)
        if problem:
            packed = decode is not _gzip and body.startswith(GZIP)
            if not data and (packed or looks_like_text(body)):
                notes.append(f"says {name}, is {'gzip' if packed else 'plain'}")
                continue
            notes.append(f"{name}: {problem}")
            if not data:
                return Body("undecodable", body, len(body), notes)
        body = data
    for _ in range(_MOST_PACKED):
        if not body.startswith(GZIP):
            break
        data, problem = _gzip(body, limit)
        if not data:
            break
        notes.append(f"gzip, which no header says{f': {problem}' if problem else ''}")
        body = data
    if len(body) > limit:
        return Body("too_large", b"", len(body), notes)
    return Body("ok", body, len(body), notes)


def payloads(head: Head | None, body: memoryview) -> Iterator[bytes | memoryview]:
    """Yield a record's payload in its two meanings: the body as stored, which most crawlers mean,
    then the body without its chunk sizes, which the standard means (RFC 2616, 4.3)."""
    yield body
    if head is not None and "chunked" in _tokens(head.get("transfer-encoding")):
        yield _dechunk(bytes(body), [])


def _tokens(value: str | None) -> list[str]:
    return [token.strip().strip("\"'").lower() for token in value.split(",")] if value else []


def _dechunk(body: bytes, notes: list[str]) -> bytes:
    out = bytearray()
    view, at, chunks = memoryview(body), 0, 0
    while at < len(body):
        line = _CHUNK_SIZE.match(body, at)
        if line is None:
            if not chunks:
                notes.append("says chunked, is not")
                return body
            notes.append(f"chunked: no chunk size at byte {at}")
            out += view[at:]
            break
        size, at = int(line.group(1), 16), line.end()
        if size == 0:
            break
        if at + size > len(body):
            if not chunks and size > 1 << 30:
                notes.append("says chunked, is not")
                return body
            notes.append("chunked: ends early")
        out += view[at : at + size]
        at += size
        chunks += 1
        if body.startswith(b"\r\n", at):
            at += 2
        elif body.startswith(b"\n", at):
            at += 1
    return bytes(out)


# Each decoder returns what it decoded, at most one step over the limit, and the error or None.


def _gzip(data: bytes, limit: int) -> tuple[bytes, str | None]:
    return _zlib(data, limit, 31)


def _deflate(data: bytes, limit: int) -> tuple[bytes, str | None]:
    """Decode the zlib format, which RFC 9110 requires, or raw deflate, which many servers send."""
    out, problem = _zlib(data, limit, 15)
    if problem and not out:
        raw, raw_problem = _zlib(data, limit, -15)
        if raw and not (raw_problem and looks_like_text(data)):
            return raw, raw_problem
    return out, problem


def _zlib(data: bytes, limit: int, bits: int) -> tuple[bytes, str | None]:
    """Decode zlib data in small steps. In each call, zlib copies all input that it has not used."""
    out, at = bytearray(), 0
    while True:
        inflate, size = zlib.decompressobj(bits), 256
        while not inflate.eof:
            step = data[at : at + size]
            at, size = at + len(step), _STEP
            before, room = inflate.copy(), min(limit - len(out) + 1, 1 << 20)
            try:
                piece = inflate.decompress(step, room)
            except zlib.error as error:
                out += _until_error(before, step, room)
                return bytes(out), str(error).rsplit(": ", 1)[-1]
            out += piece
            at -= len(inflate.unused_data if inflate.eof else inflate.unconsumed_tail)
            if len(out) > limit:
                return bytes(out), None
            if not piece and not step:
                return bytes(out), "ends early"
        if bits != 31 or not data.startswith(b"\x1f\x8b\x08", at):
            return bytes(out), None  # what follows the stream is not part of the body


def _until_error(inflate: Any, data: bytes, size: int) -> bytes:
    parts: list[bytes] = []
    remaining, step = size, 4096
    while remaining > 0:
        before = inflate.copy()
        try:
            out = inflate.decompress(data, step)
        except zlib.error:
            if step == 1:
                break
            inflate, step = before, step // 64 or 1
            continue
        if not out:
            break
        data = inflate.unconsumed_tail
        parts.append(out)
        remaining -= len(out)
    return b"".join(parts)


def _brotli(data: bytes, limit: int) -> tuple[bytes, str | None]:
    import brotli

    decoder = brotli.Decompressor()
    parts: list[bytes] = []
    size = 0
    try:
        while out := bytes(decoder.process(data, output_buffer_limit=1 << 20)):
            data = b""
            parts.append(out)
            size += len(out)
            if size > limit or decoder.is_finished():
                return b"".join(parts), None
        if decoder.is_finished():
            return b"".join(parts), None
    except brotli.error as error:
        return b"".join(parts), str(error) or "not brotli"
    return b"".join(parts), "ends early"


def _zstd(data: bytes, limit: int) -> tuple[bytes, str | None]:
    import zstandard

    parts: list[bytes] = []
    size = 0
    # Browsers refuse windows over 8 MiB (RFC 9659); archives hold what servers sent.
    decompressor = zstandard.ZstdDecompressor(max_window_size=128 << 20)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while out := reader.read(min(1 << 20, limit - size + 1)):
                parts.append(out)
                size += len(out)
                if size > limit:
                    return b"".join(parts), None
    except zstandard.ZstdError as error:
        return b"".join(parts), str(error).rsplit(": ", 1)[-1]
    return b"".join(parts), None if parts else "no data"


_DECODERS = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "x-deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
