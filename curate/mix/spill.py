"""Rows on disk: written in stretches, in memory again as one table of as many as are asked for.

Texts lie in one file as they lie in memory, so that stretches which were read are one array without
a copy; what else a row has lies beside it as Arrow messages. Memory holds a run of rows, and their
positions.

The files go past the page cache where the system can: pages that nobody reads twice would cost more
than the disk (3 s of CPU a GB in a virtual machine whose memory is not yet backed) and would push
out what others read.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.text.buffers import as_large_string, text_array, text_buffers
from llmcurate.base.errors import RunFailed, name_file

BLOCK = 4096  # offsets, sizes and addresses are multiples of it, as direct access demands
BUFFER_BYTES = 16 << 20  # that are gathered before they are written
DIRECT = getattr(os, "O_DIRECT", 0)


def _open(path: Path, flags: int, direct: int, mode: int = 0o600) -> int:
    try:
        return os.open(path, flags | direct, mode)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, mode)


def _cached(handle: int) -> None:
    """Takes a file back to the page cache, on a system that refuses direct access when used."""
    import fcntl

    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~DIRECT)


def _anonymous(size: int) -> mmap.mmap:
    """Memory at a multiple of BLOCK, in large pages where there are any: fewer faults."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class Appended:
    """A file that is written from end to end: `append` bytes, then `close`. direct: the flag of
    direct access, 0 for none."""

    def __init__(
        self, path: Path, buffer_bytes: int, mode: int = 0o600, direct: int = DIRECT
    ) -> None:
        self.path, self.size = path, 0
        self._handle = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, direct, mode)
        self._buffer, self._filled = _anonymous(buffer_bytes), 0

    def append(self, data: memoryview) -> int:
        """Adds the bytes; returns where they begin."""
        at = self.size
        self.size += len(data)
        while len(data):
            count = min(len(data), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + count] = data[:count]
            self._filled += count
            data = data[count:]
            if self._filled == len(self._buffer):
                self._flush(self._filled)
        return at

    def _flush(self, size: int) -> None:
        view, done = memoryview(self._buffer), 0
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
            del self._buffer


class Hashed(Appended):
    """A file that stays, as Arrow writes to one; sha256: of its bytes, as they come."""

    def __init__(self, path: Path, buffer_bytes: int = BUFFER_BYTES // 4) -> None:
        super().__init__(path, buffer_bytes, 0o666)
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

    def __init__(self, path: Path, buffer_bytes: int = BUFFER_BYTES, direct: int = DIRECT) -> None:
        self.path = path
        self._direct = direct
        self._file = Appended(path, buffer_bytes, direct=direct)
        self._own = threading.local()

    def append(self, data: memoryview) -> int:
        """Adds the bytes; returns where they begin."""
        return self._file.append(data)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def read(self, pieces: list[tuple[int, int]]) -> tuple[memoryview, list[int]]:
        """(memory, where in it each piece begins) of pieces (offset, size), one behind the other
        with gaps between them. They hold until this thread reads again."""
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
        view = self._memory_for(filled)
        handle = _open(self.path, os.O_RDONLY, self._direct)
        filled = 0
        try:
            for begin, end in spans:
                self._fill(handle, view[filled : filled + end - begin], begin)
                filled += end - begin
        finally:
            os.close(handle)
        return view, firsts

    def _memory_for(self, need: int) -> memoryview:
        """This thread's memory for what it reads, kept: new pages cost more than the reading. A
        sixteenth of it or more stays free."""
        memory = getattr(self._own, "memory", None)
        if memory is None or len(memory) < need + need // 16:
            self._own.memory = None
            memory = self._own.memory = _anonymous(max(BLOCK, need + need // 8))
        return memoryview(memory)

    def _fill(self, handle: int, target: memoryview, at: int) -> None:
        done = 0
        while done < len(target):
            try:
                count = os.preadv(handle, [target[done:]], at + done)
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


Piece = tuple[int, int]  # offset and size in a file


@dataclass(frozen=True)
class Stretch:
    """The position on disk of rows that were added together."""

    text: Piece
    rest: Piece
    rows: int


@dataclass(frozen=True)
class Held:
    """Rows in memory. texts: what lies between two stretches is a row of its own, so row i of
    `rest`, in which `text` is the length, has text number position[i]: int64[rows]."""

    texts: pa.LargeStringArray
    position: np.ndarray
    rest: pa.Table

    def take(self, rows: np.ndarray) -> pa.Table:
        """The rows of those numbers (int64[]), copied."""
        table = self.rest.take(pa.array(rows))
        texts = self.texts.take(pa.array(self.position[rows]))
        return table.set_column(table.column_names.index("text"), "text", texts)


class RowFile:
    """`add` rows, `close`, then `read` stretches from any thread; `remove` at the end."""

    def __init__(self, path: Path) -> None:
        self._texts = Scratch(path.with_name(f"{path.name}-texts"))
        self._rest = Scratch(path.with_name(f"{path.name}-rest"))
        self.schema: pa.Schema | None = None

    def add(self, table: pa.Table) -> Stretch:
        """Rows of the columns that the first ones have; a null text counts as an empty one."""
        text = as_large_string(table["text"])
        text = text.fill_null("") if text.null_count else text
        data, offsets = text_buffers(text)
        first, last = int(offsets[0]), int(offsets[-1])
        lengths = pa.array(np.diff(offsets))
        table = table.set_column(table.column_names.index("text"), "text", lengths)
        (batch,) = table.combine_chunks().to_batches()
        self.schema = self.schema or batch.schema
        message = memoryview(batch.serialize())
        at = self._texts.append(data[first:last].data), self._rest.append(message)
        return Stretch((at[0], last - first), (at[1], len(message)), table.num_rows)

    def close(self) -> None:
        """Nothing more comes."""
        self._texts.close()
        self._rest.close()

    def read(self, stretches: list[Stretch]) -> Held:
        """The rows of stretches, in their order. They hold until this thread reads again."""
        memory, begins = self._rest.read([s.rest for s in stretches])
        rest = pa.Table.from_batches(
            [
                pa.ipc.read_record_batch(pa.py_buffer(memory[at : at + s.rest[1]]), self.schema)
                for at, s in zip(begins, stretches, strict=True)
            ],
            self.schema,
        ).combine_chunks()
        lengths = rest["text"].to_numpy()
        memory, begins = self._texts.read([s.text for s in stretches])
        offsets, positions, row, at = [], [], 0, 0
        for begin, stretch in zip(begins, stretches, strict=True):
            ends = np.cumsum(lengths[row : row + stretch.rows])
            offsets += [np.array([begin]), begin + ends]
            positions.append(np.arange(at, at + stretch.rows))
            row, at = row + stretch.rows, at + stretch.rows + 1
        # `take` reserves memory by the mean length, and twice as much where that was too little.
        # The rest of the memory as a last row, which nobody takes, makes the mean too large.
        offsets.append(np.array([len(memory)]))
        texts = text_array(np.frombuffer(memory, np.uint8), np.concatenate(offsets))
        return Held(texts, np.concatenate(positions), rest)

    def empty(self) -> pa.Table:
        """No rows, with the columns of those that were added."""
        assert self.schema is not None
        at = self.schema.get_field_index("text")
        return self.schema.set(at, self.schema.field(at).with_type(pa.large_string())).empty_table()

    def remove(self) -> None:
        """Frees disk and memory."""
        self._texts.remove()
        self._rest.remove()


class Copy:
    """The documents of all sources, for a second reading that decodes nothing: `add` in the order
    of reading, `close`, then `runs`."""

    def __init__(self, path: Path) -> None:
        self._file = RowFile(path)
        self._stretches: list[Stretch] = []

    def add(self, table: pa.Table) -> None:
        self._stretches.append(self._file.add(table))

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def runs(self, size: int) -> Iterator[Held]:
        """All rows, so many bytes of text at a time, about. Each run holds until the next one."""
        run: list[Stretch] = []
        filled = 0
        for stretch in self._stretches:
            if run and filled + stretch.text[1] > size:
                yield self._file.read(run)
                run, filled = [], 0
            run.append(stretch)
            filled += stretch.text[1]
        if run:
            yield self._file.read(run)

    def remove(self) -> None:
        """Frees disk and memory."""
        self._file.remove()


class Spill:
    """`add` rows by part, `close`, then `rows` of any part, from any thread."""

    def __init__(self, path: Path) -> None:
        self._file = RowFile(path)
        self._stretches: dict[int, list[Stretch]] = {}

    def add(self, part: int, table: pa.Table) -> None:
        self._stretches.setdefault(part, []).append(self._file.add(table))

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def rows(self, part: int) -> Held | None:
        """The rows of a part, in the order in which they were added; None: there are none. They
        hold until this thread asks for another part."""
        stretches = self._stretches.get(part)
        return self._file.read(stretches) if stretches else None

    def empty(self) -> pa.Table:
        """No rows, with the columns of those that were added."""
        return self._file.empty()

    def remove(self) -> None:
        """Frees disk and memory."""
        self._file.remove()
