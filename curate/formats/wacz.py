"""WACZ: a zip file with web archives under `archive/` (https://specs.webrecorder.net/wacz/1.1.1/).

A compressed archive is unpacked to a temporary file of at most `MOST_RATIO` times the size of the
WACZ. Names in the zip are never used as paths.
"""

from __future__ import annotations

import io
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from curate.formats.compression import open_input
from curate.formats.events import Corrupt, Event, Portion
from curate.formats.kinds import reader
from curate.formats.warc import limits_of, read_archive
from llmcurate.base.errors import disk_error

MOST_RATIO = 200  # compression shrinks text to about a tenth
MOST_BELOW = 64 << 20  # bytes that even a small file may unpack to
ERRORS = (
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, NotImplementedError,
    struct.error,
)  # fmt: skip


class Window(io.RawIOBase):
    """The bytes [start, start + size) of a seekable file, readable like a file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self.file, self.start, self.size, self.at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = max(0, offset + (0, self.at, self.size)[whence])
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        self.file.seek(self.start + self.at)
        data = self.file.read(max(0, min(len(buffer), self.size - self.at)))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


@reader("wacz", endings=(".wacz",), pages=True)
def read(portion: Portion) -> Iterator[Event]:
    """Yield the events of all archives in the WACZ file, in the order of the zip's directory."""
    limits = limits_of(portion)
    with open_input(portion.path) as file:
        try:
            directory = zipfile.ZipFile(file)
        except ERRORS as error:
            yield Corrupt(0, f"not a zip file: {error}")
            return
        names = [m for m in directory.infolist() if m.filename.startswith("archive/")]
        archives = [m for m in names if not m.is_dir()]
        if not archives:
            yield Corrupt(0, "WACZ: no archive in it (no file under archive/)")
        allowed = max(MOST_BELOW, MOST_RATIO * file.seek(0, 2))
        for member in archives:
            allowed -= member.file_size
            if allowed < 0:
                damage = f"WACZ: it would unpack to more than {MOST_RATIO} times its size"
                yield Corrupt(member.header_offset, damage)
                return
            try:
                if member.header_offset < 0:
                    raise zipfile.BadZipFile("its offset is before the start of the file")
                with _opened(directory, file, member) as archive:
                    for event in read_archive(archive, limits=limits):
                        event.offset += member.header_offset
                        yield event
            except ERRORS as error:
                name = repr(member.filename[:100])
                yield Corrupt(member.header_offset, f"WACZ: {name}: {error}")


@contextmanager
def _opened(
    directory: zipfile.ZipFile, file: BinaryIO, member: zipfile.ZipInfo
) -> Iterator[BinaryIO]:
    with directory.open(member) as packed:  # checks the member's own header
        if member.compress_type == zipfile.ZIP_STORED:
            file.seek(member.header_offset)
            name, more = struct.unpack("<26x2H", file.read(30))
            start = member.header_offset + 30 + name + more
            yield cast(
                BinaryIO, io.BufferedReader(cast(Any, Window(file, start, member.file_size)))
            )
            return
        with tempfile.TemporaryFile() as whole:
            try:
                shutil.copyfileobj(packed, whole, 1 << 20)
            except OSError as error:
                raise disk_error(error) or error from None
            whole.seek(0)
            yield whole
