"""A file that is written once from end to end, read in pieces, and thrown away.

Where the system can, it goes past the page cache: pages that nobody reads twice would cost more
than the disk (3 s of CPU a GB in a virtual machine whose memory is not yet backed) and would push
out what others read.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

from curate.errors import RunFailed, name_file

BLOCK = 4096  # offsets, sizes and addresses are multiples of it, as direct access demands
ROOM = 16 << 20  # bytes gathered before they are written
_DIRECT = getattr(os, "O_DIRECT", 0)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _DIRECT, 0o600)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, 0o600)


def _cached(handle: int) -> None:
    """Takes a file back to the page cache, on a system that refuses direct access when used."""
    import fcntl

    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~_DIRECT)


class Scratch:
    """`append` bytes, `close`, then `read` pieces from any thread; `remove` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._room = mmap.mmap(-1, ROOM)
        self._filled = self.size = 0
        self._own = threading.local()

    def append(self, data: memoryview) -> int:
        """Adds the bytes; returns where they begin."""
        at = self.size
        self.size += len(data)
        while len(data):
            count = min(len(data), ROOM - self._filled)
            self._room[self._filled : self._filled + count] = data[:count]
            self._filled += count
            data = data[count:]
            if self._filled == ROOM:
                self._flush(ROOM)
        return at

    def _flush(self, size: int) -> None:
        view, done = memoryview(self._room), 0
        try:
            while done < size:
                try:
                    done += os.write(self._handle, view[done:size])
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    _cached(self._handle)
        except OSError as error:
            name_file(error, self.path)
            raise
        finally:
            view.release()
        self._filled = 0

    def close(self) -> None:
        """Nothing more comes."""
        if self._handle >= 0:
            try:
                self._flush(-(-self._filled // BLOCK) * BLOCK)
            finally:
                os.close(self._handle)
                self._handle = -1

    def read(self, pieces: list[tuple[int, int]]) -> list[memoryview]:
        """The bytes of pieces (offset, size). They hold until this thread reads again."""
        spans = [(at // BLOCK * BLOCK, -(-(at + size) // BLOCK) * BLOCK) for at, size in pieces]
        need = max(BLOCK, sum(end - begin for begin, end in spans))
        room = getattr(self._own, "room", None)
        if room is None or len(room) < need:
            room = self._own.room = mmap.mmap(-1, need)
        view, filled, found = memoryview(room), 0, []
        handle = _open(self.path, os.O_RDONLY)
        try:
            for (begin, end), (at, size) in zip(spans, pieces, strict=True):
                self._fill(handle, view[filled : filled + end - begin], begin)
                first = filled + at - begin
                found.append(view[first : first + size])
                filled += end - begin
        finally:
            os.close(handle)
        return found

    def _fill(self, handle: int, room: memoryview, at: int) -> None:
        done = 0
        while done < len(room):
            try:
                count = os.preadv(handle, [room[done:]], at + done)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                _cached(handle)
                continue
            if not count:
                raise RunFailed(f"{self.path} is cut short; run the same command again")
            done += count

    def remove(self) -> None:
        """Frees the disk, whatever was written."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        self.path.unlink(missing_ok=True)
