"""Compressed files, read as a chain of members: damage in one member does not hide the others.

A member is a gzip member, a zstd or lz4 frame, or a bzip2 or xz stream, recognised by magic bytes.
The data before the damage in a member is delivered, the damage is reported with its offset, and
reading resumes at the next member that decodes. Input is a seekable binary file (local or fsspec).

A decoder of a member of any size holds one block of input and at most `OUT` bytes of output (zstd:
eight blocks of 128 KiB). For zstd and xz, it also holds the filled part of the member's window (at
most `MAX_WINDOW`). After iteration, the decoder's `end` is the offset just after the member.
"""

from __future__ import annotations

import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, ClassVar, NamedTuple

from curate.formats.heads import begins_record

fast_zlib: Any = zlib
with suppress(ImportError):  # twice as fast; zlib retries what this library refuses
    from isal import isal_zlib

    fast_zlib = isal_zlib

STEP = 32 << 10
"""Compressed bytes given to a decoder at a time; small, because zlib copies unused input."""
OUT = 1 << 20
"""Most decompressed bytes yielded at a time."""
BLOCK = 1 << 20
"""Bytes read from the file at a time."""
MAX_WINDOW = 1 << 31
"""Largest zstd window accepted (bytes): the largest that `zstd --long=31` writes and the library
reads. It takes memory only as content fills it."""
_DICTIONARY = 128 << 20  # most bytes of a dictionary

GZIP = b"\x1f\x8b\x08"
ZSTD = b"\x28\xb5\x2f\xfd"
LZ4 = b"\x04\x22\x4d\x18"
BZIP2 = b"BZh"
XZ = b"\xfd7zXZ\x00"
MAGIC = {"gzip": GZIP, "zstd": ZSTD, "lz4": LZ4, "bzip2": BZIP2, "xz": XZ}

_ESCAPE = re.compile(rb"\\x([89a-f][0-9a-f])")


def escaped(path: str) -> str:
    """Return a path as valid UTF-8 text: bytes that are not UTF-8 (PEP 383) become `\\xNN`."""
    if path.isascii():
        return path
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def path_of(text: str) -> str:
    """Return `text` if it is a file's path. If not, undo the function `escaped`: turn each `\\xNN`
    into a byte. `listing.py` refuses a file whose escaped name is another file's name."""
    if "\\x" not in text or os.path.lexists(text):
        return text
    return os.fsdecode(_ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()), os.fsencode(text)))


def open_input(path: str) -> BinaryIO:
    """Open a local path (as `escaped` writes it) or a URL (of fsspec) as a seekable binary file."""
    if "://" not in path:
        return open(path_of(path), "rb")
    import fsspec

    file: BinaryIO = fsspec.open(path, "rb").open()
    return file


# Decoders of one member.


class BadMember(Exception):
    """Raised for a member that does not decode; `truncated` is True if the file ends inside it."""

    def __init__(self, what: str, truncated: bool = False) -> None:
        super().__init__(what)
        self.what, self.truncated = what, truncated


class Source:
    """A seekable binary file that is read at any offset, with one block of it in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.base, self.block = file, 0, b""

    def at(self, offset: int, size: int = STEP) -> bytes:
        """Return 1 to `size` bytes of the file from `offset` on, or b"" at the file's end."""
        index = offset - self.base
        if not 0 <= index < len(self.block):
            self.file.seek(offset)
            self.base, self.block, index = offset, self.file.read(BLOCK), 0
        return self.block[index : index + size]

    def exact(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file from `offset` on, or fewer if the file ends before."""
        data = self.at(offset, size)
        while len(data) < size and (more := self.at(offset + len(data), size - len(data))):
            data += more
        return data

    def find(self, pattern: bytes, offset: int, until: int | None = None) -> int | None:
        """Return where `pattern` first occurs from `offset` on (up to about `until`), or None."""
        keep = len(pattern) - 1
        while until is None or offset < until:
            data = self.at(offset, BLOCK)
            if len(data) <= keep:
                data = self.exact(offset, BLOCK)
            index = data.find(pattern)
            if index >= 0:
                return offset + index
            if len(data) <= keep:
                return None
            offset += len(data) - keep
        return None

    def after_nuls(self, offset: int) -> int:
        """Return the offset of the first byte that is not NUL from `offset` on, or of the end."""
        while data := self.at(offset, BLOCK):
            offset += len(data) - len(text := data.lstrip(b"\0"))
            if text:
                break
        return offset


class GzipMember:
    """One gzip member (RFC 1952). The zlib library checks the member's header, CRC and length."""

    def __init__(self, source: Source, offset: int) -> None:
        self.source, self.start, self.end = source, offset, offset

    def __iter__(self) -> Iterator[bytes]:
        inflate = fast_zlib.decompressobj(31)
        delivered, step = 0, 4096
        while True:
            data = self.source.at(self.end, step)
            step = STEP
            self.end += len(data)
            last = not data
            while True:
                try:
                    out = inflate.decompress(data, OUT)
                except fast_zlib.error:
                    yield from self._salvage(delivered)
                    return
                if out:
                    delivered += len(out)
                    yield out
                if inflate.eof:
                    self.end -= len(inflate.unused_data)
                    return
                data = inflate.unconsumed_tail
                if not data and len(out) < OUT:
                    break
            if last:
                yield from self._salvage(delivered)
                return

    def _salvage(self, delivered: int) -> Iterator[bytes]:
        """Decode the member again in small steps, and yield its bytes after the first `delivered`.
        Raises BadMember where decoding fails or the file ends."""
        inflate, seen = zlib.decompressobj(31), 0
        failed_at, self.end = self.end, self.start
        fine = False  # True: feed single bytes, to deliver all bytes before the error
        data, ended = b"", False
        while True:
            if not data:
                data = self.source.at(self.end, 1 if fine else 4096)
                self.end += len(data)
                pending, ended = not ended and not data, not data
                if ended and not pending:  # at first zlib may still hold output
                    raise BadMember("gzip: the file ends inside a member", truncated=True)
            before = None if fine else inflate.copy()
            try:
                out = inflate.decompress(data, 1 if fine else 4096)
            except zlib.error as error:
                if before is None:
                    self.end = max(self.end, failed_at)
                    raise BadMember(f"gzip: {_reason(error)}") from None
                self.end -= len(data)
                inflate, fine, data = before, True, b""
                continue
            data = inflate.unconsumed_tail
            seen += len(out)
            if seen > delivered:
                yield out[-(seen - delivered) :]
                delivered = seen
            if inflate.eof:
                self.end -= len(inflate.unused_data)
                return


class Streamed:
    """A member whose decompression library decodes in steps, with bounded output."""

    name: ClassVar[str]
    errors: tuple[type[Exception], ...]
    steps = (STEP, 256)  # bytes decoded at a time; the second pass runs only if the first failed

    def __init__(self, source: Source, offset: int) -> None:
        self.source, self.start, self.end = source, offset, offset

    def decoder(self) -> Any:
        """Return a decoder with `decompress(data, max_length=N)`, as in the standard library."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        delivered = 0
        for step in self.steps:
            try:
                seen = 0
                for out in self._decode(step):
                    seen += len(out)
                    if seen > delivered:
                        yield out[-(seen - delivered) :]
                        delivered = seen
                return
            except self.errors as error:
                reason = f"{self.name}: {_reason(error)}"
                if reason.endswith("not enough memory"):
                    raise MemoryError(reason) from None  # the file is not damaged
        raise BadMember(reason)

    def _decode(self, step: int) -> Iterator[bytes]:
        decoder = self.decoder()
        self.end = self.start
        while True:
            data = self.source.at(self.end, step)
            if not data:
                raise BadMember(f"{self.name}: the file ends inside a frame", truncated=True)
            self.end += len(data)
            out = decoder.decompress(data, max_length=OUT)
            if out:
                yield out
            while not decoder.eof and not decoder.needs_input:
                out = decoder.decompress(b"", max_length=OUT)
                if not out:
                    break
                yield out
            if decoder.eof:
                self.end -= len(decoder.unused_data or b"")
                return


class ZstdFrame(Streamed):
    """One zstd frame (RFC 8878), decoded by blocks so that no call inflates more than 1 MiB."""

    name = "zstd"
    steps = (8, 1)  # blocks at a time

    def __init__(
        self, source: Source, offset: int, decompressor: Any, error: type[Exception]
    ) -> None:
        super().__init__(source, offset)
        self.decompressor, self.error, self.errors = decompressor, error, (error,)

    def _decode(self, batch: int) -> Iterator[bytes]:
        decoder: Any = self.decompressor.decompressobj()
        at, checksum = self._header()
        fed, blocks, last = self.start, 0, False
        while not last:
            self.end = at
            head = self.source.exact(at, 3)
            word = int.from_bytes(head, "little")
            last, kind, size = bool(word & 1), word >> 1 & 3, word >> 3
            if len(head) == 3 and (kind == 3 or size > 128 << 10):
                raise self.error("invalid block header")
            at += 3 + (1 if kind == 1 else size) + (4 if last and checksum else 0)
            blocks += 1
            if last or blocks == batch:
                data = self.source.exact(fed, at - fed)
                if len(data) < at - fed:
                    if batch > 1:
                        raise self.error("truncated")  # retried one block at a time
                    raise BadMember("zstd: the file ends inside a frame", truncated=True)
                out = decoder.decompress(data)
                if out:
                    yield out
                fed, blocks = at, 0
        self.end = at
        if not decoder.eof:
            raise self.error("the frame does not end where its last block does")

    def _header(self) -> tuple[int, bool]:
        """Return the offset of the first block, and True if a checksum follows the last block."""
        head = self.source.exact(self.start, 18)
        if len(head) < 6:
            raise BadMember("zstd: the file ends inside a frame", truncated=True)
        flags = head[4]
        single, size_flag = flags >> 5 & 1, flags >> 6
        length = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
        length += (single, 2, 4, 8)[size_flag]
        return self.start + length, bool(flags & 4)


class Lz4Frame(Streamed):
    """One lz4 frame (not the legacy format)."""

    name = "lz4"
    errors = (RuntimeError, ValueError, EOFError, MemoryError)

    def decoder(self) -> Any:
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor()


class Bzip2Stream(Streamed):
    """One bzip2 stream; a multistream file, such as a Wikimedia dump, has many."""

    name = "bzip2"
    errors = (OSError, ValueError, EOFError)

    def decoder(self) -> Any:
        import bz2

        return bz2.BZ2Decompressor()


class XzStream(Streamed):
    """One xz stream with a dictionary of at most MAX_WINDOW bytes."""

    name = "xz"
    errors = (lzma.LZMAError, ValueError, EOFError)

    def decoder(self) -> Any:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW)


DECODERS = {
    "gzip": GzipMember,
    "zstd": ZstdFrame,
    "lz4": Lz4Frame,
    "bzip2": Bzip2Stream,
    "xz": XzStream,
}


def _reason(error: BaseException) -> str:
    return str(error).rsplit(": ", 1)[-1] or type(error).__name__


# The chain of members.

START, DATA, END, BREAK = "start", "data", "end", "break"
_SKIPPABLE = b"\x2a\x4d\x18"
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
"""The bytes after a bzip2 stream's header: a block, or the end of an empty stream."""
_PROBE = 1 << 20
"""Compressed bytes of a candidate that must decode before reading resumes there."""
_EFFORT = 64 << 20
"""Compressed bytes per file that may be decoded at false candidates after damage. Beyond it, the
bytes that a false candidate consumed are not searched again, so hostile files cost linear time."""


class Piece(NamedTuple):
    """A piece of a chain of compressed members. Its `kind` is `start` (a member begins), `data`
    (decompressed), `end` (the member has passed all checks) or `break` (the bytes at `offset`
    cannot be read; `what` says why). A break `inside` a member follows the member's data; other
    breaks lie between members."""

    kind: str
    offset: int
    data: bytes = b""
    what: str = ""
    inside: bool = False


class CorruptData(ValueError):
    """Raised for compressed data that does not decode, if the caller does not handle damage."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"corrupt data at byte {offset}: {what}")
        self.offset, self.what = offset, what


def sniff(file: BinaryIO) -> str:
    """Return a file's compression by its first bytes after NULs: a key of MAGIC, or `plain`."""
    source = Source(file)
    at = source.after_nuls(0)
    for _ in range(16):
        head = source.exact(at, 8)
        if head[:3] == GZIP:
            return "gzip"
        if head[:4] == ZSTD:
            return "zstd"
        if head[:4] == LZ4:
            return "lz4"
        if head[:6] == XZ:
            return "xz"
        if head[:3] == BZIP2 and source.exact(at + 4, 6) in _BZIP2_BLOCKS:
            return "bzip2"
        if not _skippable(head):
            return "plain"
        at += 8 + int.from_bytes(head[4:], "little")
    return "plain"


def members(
    file: BinaryIO,
    start: int = 0,
    end: int | None = None,
    codec: str | None = None,
) -> Iterator[Piece]:
    """Yield the pieces (data, damage, boundaries) of all members that begin in [start, end). For a
    plain file, `end` is ignored: all bytes from `start` on are yielded."""
    codec = codec or sniff(file)
    source = Source(file)
    if codec == "plain":
        at = start
        while data := source.at(at, BLOCK):
            yield Piece(DATA, at, data)
            at += len(data)
        return
    yield from _Chain(source, codec).pieces(start, end)


def first_member(file: BinaryIO, codec: str, within: int = 64 << 20) -> int | None:
    """Return the offset of the first member after byte 0 that decodes, or None. None is also
    returned if the first `within` (a number) bytes after leading NULs have no magic bytes."""
    source = Source(file)
    begin = source.after_nuls(0)
    start = source.find(MAGIC[codec], begin, begin + within)
    return None if start is None else _Chain(source, codec).resume(0, 0)


class _Chain:
    def __init__(self, source: Source, codec: str) -> None:
        self.source, self.codec, self.magic = source, codec, MAGIC[codec]
        self._decoder: Callable[[Source, int], Any] = DECODERS[codec]
        self.effort = _EFFORT
        self.damage = ""  # damage in the dictionary that all members need
        if codec == "zstd":
            import zstandard

            dictionary, self.damage = _dictionary(source)
            decompressor = zstandard.ZstdDecompressor(dictionary, max_window_size=MAX_WINDOW)
            self._decoder = partial(ZstdFrame, decompressor=decompressor, error=zstandard.ZstdError)

    def member(self, at: int) -> Any:
        return self._decoder(self.source, at)

    def pieces(self, start: int, end: int | None) -> Iterator[Piece]:
        if self.damage and start == 0:
            yield Piece(BREAK, 0, what=self.damage)
        at: int | None = start
        while at is not None and (end is None or at < end):
            head = self.source.exact(at, 8)
            if not head:
                return
            if self.codec != "gzip" and _skippable(head):
                at += 8 + int.from_bytes(head[4:], "little")
                continue
            if not head.startswith(self.magic):
                nuls = self.source.after_nuls(at) - at
                if not nuls or nuls % 4 or self.codec != "xz":  # xz padding: .xz format, 2.2
                    what = f"{nuls} NUL bytes" if nuls else f"no {self.codec} data"
                    yield Piece(BREAK, at, what=what)
                at = at + nuls if nuls else self.resume(at, at)
                continue
            yield Piece(START, at)
            member = self.member(at)
            try:
                for data in member:
                    yield Piece(DATA, at, data)
                at = member.end
                yield Piece(END, member.end)
            except BadMember as bad:
                yield Piece(BREAK, at, what=bad.what, inside=True)
                at = self.resume(at, member.end)

    def resume(self, start: int, reached: int) -> int | None:
        """Return the offset of the next member that decodes after a damaged one, or None. The
        damaged one begins at `start` and was read up to `reached`. The search begins at `start` +
        1, because damage can make a decoder run into later members. Members inside the damaged
        member's content (an archive in an archive) are skipped; see `_verbatim`."""
        nested: set[bytes] | None = None
        at = start + 1
        while (candidate := self.source.find(self.magic, at)) is not None:
            at = candidate + 1
            good, consumed = self._decodes(candidate)
            if good:
                if candidate >= reached:
                    return candidate
                if nested is None:
                    nested = self._verbatim(start)
                if self.source.exact(candidate, 32) not in nested:
                    return candidate
            else:
                self.effort -= consumed
                if self.effort < 0:
                    at = max(at, candidate + consumed)
        return None

    def _decodes(self, at: int) -> tuple[bool, int]:
        member, begins = self.member(at), b""
        try:
            for data in member:
                if len(begins) < 16:
                    begins += data[:16]
                if member.end - at > _PROBE:
                    break
            return True, member.end - at
        except BadMember as bad:
            # A member cut by the end of the file counts only if it begins like a record.
            return bad.truncated and begins[:5].upper() == b"WARC/", member.end - at

    def _verbatim(self, start: int) -> set[bytes]:
        """Return the first 32 bytes from each occurrence of the magic bytes in the decoded content
        of the member at `start`."""
        needles: set[bytes] = set()
        tail = b""
        try:
            for data in self.member(start):
                text = tail + data
                index = text.find(self.magic)
                while 0 <= index <= len(text) - 32 and len(needles) < 1 << 20:
                    needles.add(text[index : index + 32])
                    index = text.find(self.magic, index + 1)
                tail = text[-31:]
        except BadMember:
            pass
        return needles


def _skippable(head: bytes) -> bool:
    return len(head) == 8 and head[1:4] == _SKIPPABLE and head[0] >> 4 == 5


def _dictionary(source: Source) -> tuple[Any, str]:
    """Return (the zstd dictionary at the beginning of a .warc.zst or None, a description of its
    damage). Format: https://iipc.github.io/warc-specifications/specifications/warc-zstd/"""
    import zstandard

    begin = source.after_nuls(0)
    head = source.exact(begin, 8)
    size = int.from_bytes(head[4:], "little")
    if head[:4] != b"\x5d\x2a\x4d\x18" or size > _DICTIONARY:
        return None, ""
    raw = source.exact(begin + 8, size)
    try:
        if raw.startswith(ZSTD):
            with zstandard.ZstdDecompressor(max_window_size=_DICTIONARY).stream_reader(
                raw
            ) as frame:
                raw = frame.read(_DICTIONARY)
        dictionary = zstandard.ZstdCompressionDict(raw)
        zstandard.ZstdDecompressor(dictionary)  # validates it
    except (zstandard.ZstdError, ValueError) as error:
        reason = f"its zstd dictionary is damaged ({error}): no frame that needs it can be read"
        return None, reason
    return dictionary, ""


def decompressed_chunks(
    file: BinaryIO,
    codec: str | None = None,
    on_corrupt: Callable[[int, str], object] | None = None,
    start: int = 0,
    end: int | None = None,
) -> Iterator[bytes]:
    """Yield the decompressed content of a file in chunks of at most about 1 MiB. Only members
    that start in [start, end) are read. `on_corrupt(offset, what)` is called for unreadable
    bytes, between the chunks before and after them, so that a reader of lines can drop the cut
    line. Without `on_corrupt`, damage raises `CorruptData`. A wrong checksum is reported after
    the data."""
    for piece in members(file, start, end, codec):
        if piece.kind == DATA:
            yield piece.data
        elif piece.kind == BREAK:
            if on_corrupt is None:
                raise CorruptData(piece.offset, piece.what)
            on_corrupt(piece.offset, piece.what)


def verified_boundaries(
    file: BinaryIO,
    size: int,
    target_bytes: int,
    is_record: Callable[[bytes], bool] = begins_record,
) -> list[int]:
    """Return the offsets at which an archive of `size` bytes can be cut into slices of about
    `target_bytes` compressed bytes. The first is 0; a plain file or a single member gives [0].

    Magic bytes alone do not prove that a member begins: they occur by chance, and an archive may
    contain another archive. A candidate counts only if its content begins with a record
    (`is_record`) and the members from there on decode, checksums included, over more than 128 KiB
    of compressed bytes (zstd: 256 KiB) or up to the end of the file. An inner archive's members
    cannot pass this test: the outer archive leaves their bytes unchanged only in stored (not
    compressed) blocks of at most 65,535 bytes (zstd: 128 KiB), and the header of its next block
    interrupts them.
    """
    codec = sniff(file)
    cuts = [0]
    if codec == "plain" or target_bytes <= 0:
        return cuts
    source = Source(file)
    chain = _Chain(source, codec)
    proof = (256 if codec == "zstd" else 128) << 10
    target = target_bytes
    while target < size:
        effort = max(16 << 20, target_bytes)
        candidate = source.find(chain.magic, max(target, cuts[-1] + 1))
        if candidate is None:
            break
        while candidate is not None and effort > 0:
            good, consumed = _is_chain(chain, candidate, proof, is_record)
            if good:
                cuts.append(candidate)
                break
            effort -= consumed + 256
            candidate = source.find(chain.magic, candidate + 1)
            if candidate is not None and candidate >= target + target_bytes:
                break
        target = max(target, cuts[-1]) + target_bytes
    return cuts


def _is_chain(
    chain: _Chain, at: int, proof: int, is_record: Callable[[bytes], bool]
) -> tuple[bool, int]:
    """Return (is a chain, bytes read). In a chain, whole members follow each other from `at` on,
    for over `proof` bytes or to the end of the file, and the first member begins with a record."""
    first, position = True, at
    while True:
        head = chain.source.exact(position, 8)
        if not head:
            return not first, position - at
        if chain.codec != "gzip" and _skippable(head):
            position += 8 + int.from_bytes(head[4:], "little")
            continue
        if not head.startswith(chain.magic):
            return False, position - at
        member, begins = chain.member(position), b""
        try:
            for data in member:
                if first and len(begins) < 16384:
                    begins += data[:16384]
                if first and len(begins) >= 16384 and not is_record(begins):
                    return False, member.end - at
                if member.end - at > 64 * proof:
                    return False, member.end - at
        except BadMember:
            return False, member.end - at
        if first and not is_record(begins):
            return False, member.end - at
        first, position = False, member.end
        if position - at > proof:
            return True, position - at
