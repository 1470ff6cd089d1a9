"""Decoders of one compressed member: a gzip member, a zstd, lz4 or xz frame, a bzip2 stream.

Each decoder streams: it holds one slice of input and at most `OUT` bytes of output (for zstd eight
blocks of 128 KiB), whatever the member inflates to. After it was iterated to the end, `end` is the
offset just behind the member. Where the member is damaged, everything that decodes before the
damage is yielded first and then `BadMember` is raised.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO, ClassVar

fast_zlib: Any = zlib
with suppress(ImportError):  # twice as fast; zlib has the last word on whatever it refuses
    from isal import isal_zlib

    fast_zlib = isal_zlib

STEP = 32 << 10
"""Compressed bytes delivered to a decoder at a time; small, as zlib copies what it does not use."""
OUT = 1 << 20
"""Most decompressed bytes yielded at a time."""
BLOCK = 1 << 20
"""Bytes read from the file at a time."""
MAX_WINDOW = 128 << 20
"""Largest zstd window accepted (bytes), as in the zstd command line tool."""

GZIP = b"\x1f\x8b\x08"
ZSTD = b"\x28\xb5\x2f\xfd"
LZ4 = b"\x04\x22\x4d\x18"
BZIP2 = b"BZh"
XZ = b"\xfd7zXZ\x00"
MAGIC = {"gzip": GZIP, "zstd": ZSTD, "lz4": LZ4, "bzip2": BZIP2, "xz": XZ}


class BadMember(Exception):
    """A member that does not decode; `truncated` when only because the file ends."""

    def __init__(self, what: str, truncated: bool = False) -> None:
        super().__init__(what)
        self.what, self.truncated = what, truncated


class Source:
    """A seekable binary file, read at any offset through one block in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.base, self.block = file, 0, b""

    def at(self, offset: int, size: int = STEP) -> bytes:
        """Between 1 and `size` bytes from `offset` on; none at the end of the file."""
        index = offset - self.base
        if not 0 <= index < len(self.block):
            self.file.seek(offset)
            self.base, self.block, index = offset, self.file.read(BLOCK), 0
        return self.block[index : index + size]

    def exact(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end of the file."""
        data = self.at(offset, size)
        while len(data) < size and (more := self.at(offset + len(data), size - len(data))):
            data += more
        return data

    def find(self, pattern: bytes, offset: int, until: int | None = None) -> int | None:
        """The first offset >= `offset` (and below about `until`) where `pattern` stands."""
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


class GzipMember:
    """One gzip member (RFC 1952); zlib checks the header, the CRC and the length."""

    def __init__(self, source: Source, offset: int, **_: Any) -> None:
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
        """What the failing call would have delivered before its error, byte by byte at the end.

        Raises BadMember where zlib fails too; otherwise the member is whole.
        """
        inflate, seen = zlib.decompressobj(31), 0
        failed_at, self.end = self.end, self.start
        fine = False  # one byte in, one byte out: the bytes before the error come out first
        data, ended = b"", False
        while True:
            if not data:
                data = self.source.at(self.end, 1 if fine else 4096)
                self.end += len(data)
                pending, ended = not ended and not data, not data
                if ended and not pending:  # the first time zlib may still hold output
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


class ZstdFrame:
    """One zstd frame (RFC 8878), walked block by block so that no call inflates more than 1 MiB."""

    def __init__(
        self, source: Source, offset: int, decompressor: Any, error: type[Exception]
    ) -> None:
        self.source, self.start, self.end = source, offset, offset
        self.decompressor, self.error = decompressor, error

    def __iter__(self) -> Iterator[bytes]:
        delivered = 0
        for batch in (8, 1):  # the second pass only where a batch of blocks failed
            try:
                seen = 0
                for out in self._decode(batch):
                    seen += len(out)
                    if seen > delivered:
                        yield out[-(seen - delivered) :]
                        delivered = seen
                return
            except self.error as error:
                reason = f"zstd: {_reason(error)}"
        raise BadMember(reason)

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
                        raise self.error("truncated")  # once more, one block at a time
                    raise BadMember("zstd: the file ends inside a frame", truncated=True)
                out = decoder.decompress(data)
                if out:
                    yield out
                fed, blocks = at, 0
        self.end = at
        if not decoder.eof:
            raise self.error("the frame does not end where its last block does")

    def _header(self) -> tuple[int, bool]:
        """Offset of the first block; whether a checksum follows the last one."""
        head = self.source.exact(self.start, 18)
        if len(head) < 6:
            raise BadMember("zstd: the file ends inside a frame", truncated=True)
        flags = head[4]
        single, size_flag = flags >> 5 & 1, flags >> 6
        length = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
        length += (single, 2, 4, 8)[size_flag]
        return self.start + length, bool(flags & 4)


class Streamed:
    """A member whose library decodes piece by piece, within a bound of output."""

    name: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, source: Source, offset: int, **_: Any) -> None:
        self.source, self.start, self.end = source, offset, offset

    def decoder(self) -> Any:
        """A decoder with `decompress(data, max_length=N)`, as the standard library's have it."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        delivered = 0
        for step in (STEP, 256):  # the second pass, in small steps, only where the first failed
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


class Lz4Frame(Streamed):
    """One lz4 frame (not the legacy format)."""

    name = "lz4"
    errors = (RuntimeError, ValueError, EOFError, MemoryError)

    def decoder(self) -> Any:
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor()


class Bzip2Stream(Streamed):
    """One bzip2 stream; a multistream file, as Wikimedia's dumps are, has many."""

    name = "bzip2"
    errors = (OSError, ValueError, EOFError)

    def decoder(self) -> Any:
        import bz2

        return bz2.BZ2Decompressor()


class XzStream(Streamed):
    """One xz stream, whose dictionary is no larger than MAX_WINDOW."""

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
    """zlib's `Error -3 while decompressing data: incorrect data check`, without the preface."""
    return str(error).rsplit(": ", 1)[-1] or type(error).__name__
