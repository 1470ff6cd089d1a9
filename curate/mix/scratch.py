"""Files that are written once from end to end: to be read in pieces and thrown away, or to stay.

Where the system can, they go past the page cache: pages that nobody reads twice would cost more
than the disk (3 s of CPU a GB in a virtual machine whose memory is not yet backed) and would push
out what others read.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path

from curate.errors import RunFailed, name_file

BLOCK = 4096  # offsets, sizes and addresses are multiples of it, as direct access demands
ROOM = 16 << 20  # bytes gathered before they are written
_DIRECT = getattr(os, "O_DIRECT", 0)


def _open(path: Path, flags: int, mode: int = 0o600) -> int:
    try:
        return os.open(path, flags | _DIRECT, mode)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, mode)


def _cached(handle: int) -> None:
    """Takes a file back to the page cache, on a system that refuses direct access when used."""
    import fcntl

    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~_DIRECT)


def _anonymous(size: int) -> mmap.mmap:
    """Memory at a multiple of BLOCK, in large pages where there are any: fewer faults."""
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            room.madvise(mmap.MADV_HUGEPAGE)
    return room


class Appended:
    """A file that is written from end to end: `append` bytes, then `close`."""

    def __init__(self, path: Path, room: int, mode: int = 0o600) -> None:
        self.path, self.size = path, 0
        self._handle = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        self._room, self._filled = _anonymous(room), 0

    def append(self, data: memoryview) -> int:
        """Adds the bytes; returns where they begin."""
        at = self.size
        self.size += len(data)
        while len(data):
            count = min(len(data), len(self._room) - self._filled)
            self._room[self._filled : self._filled + count] = data[:count]
            self._filled += count
            data = data[count:]
            if self._filled == len(self._room):
                self._flush(self._filled)
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
        """Nothing more comes. The file may end with a part of a block that was not appended."""
        if self._handle >= 0:
            try:
                self._flush(-(-self._filled // BLOCK) * BLOCK)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Leaves the file as it is."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            del self._room


class Hashed(Appended):
    """A file that stays, as Arrow writes to one; sha256: of its bytes, as they come."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ROOM // 4, 0o666)
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.sha256.update(view)
        self.append(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Does nothing: `close` writes what is left, and whoever renames the file makes it last."""

    @property
    def closed(self) -> bool:
        return self._handle < 0

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.truncate(self.path, self.size)


class Scratch:
    """`append` bytes, `close`, then `read` pieces from any thread; `remove` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = Appended(path, ROOM)
        self._own = threading.local()

    def append(self, data: memoryview) -> int:
        """Adds the bytes; returns where they begin."""
        return self._file.append(data)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def read(self, pieces: list[tuple[int, int]]) -> tuple[memoryview, list[int]]:
        """(room, where in it each piece begins) of pieces (offset, size), one behind the other with
        gaps between them. They hold until this thread reads again."""
        spans: list[list[int]] = []  # of the file, in whole blocks: pieces that meet are one
        firsts, filled, after = [], 0, -1
        for at, size in pieces:
            begin, end = at // BLOCK * BLOCK, -(-(at + size) // BLOCK) * BLOCK
            if at == after:
                filled += end - spans[-1][1]
                spans[-1][1] = end
            else:
                spans.append([begin, end])
                filled += end - begin
            firsts.append(filled - end + at)
            after = at + size
        view = self._room_of(filled)
        handle = _open(self.path, os.O_RDONLY)
        filled = 0
        try:
            for begin, end in spans:
                self._fill(handle, view[filled : filled + end - begin], begin)
                filled += end - begin
        finally:
            os.close(handle)
        return view, firsts

    def _room_of(self, need: int) -> memoryview:
        """This thread's memory for what it reads, kept: new pages cost more than the reading. A
        sixteenth of it or more is left."""
        room = getattr(self._own, "room", None)
        if room is None or len(room) < need + need // 16:
            self._own.room = None
            room = self._own.room = _anonymous(max(BLOCK, need + need // 8))
        return memoryview(room)

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
        """Frees disk and memory, whatever was written."""
        self._own = threading.local()
        self._file.abandon()
        self.path.unlink(missing_ok=True)
