"""Rows on disk: they are appended in blocks, and any number of blocks is read back as one table.

Texts are stored in one file exactly as in memory, so blocks that are read together form one array
without a copy. The other columns are stored in a second file as Arrow messages. Memory holds the
write buffers, the blocks that each thread read last, and the positions of all blocks.

Where the system allows, files bypass the page cache: cached pages that nobody reads again would
cost more than the disk (3 s of CPU per GB in a virtual machine to which the host has not yet given
the memory) and would evict pages that other programs need.
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
from llmcurate.base.errors import RunFailed, set_error_file

BLOCK = 4096  # direct access needs offsets, sizes and addresses that are multiples of it
BUFFER_BYTES = 16 << 20  # collected before a write
DIRECT = getattr(os, "O_DIRECT", 0)


def _open(path: Path, flags: int, direct: int, mode: int = 0o600) -> int:
    try:
        return os.open(path, flags | direct, mode)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, mode)


def _use_page_cache(handle: int) -> None:
    """Turn direct access to the disk (O_DIRECT) off for an open file. Some systems open a file with
    this flag but then refuse to read or write."""
    import fcntl

    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~DIRECT)


def _anonymous(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel has no large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class Appended:
    """A file that is written sequentially: call `append` for each piece of data, then `close`.
    `direct` is the flag that opens a file for direct access, 0 to use the page cache."""

    def __init__(
        self, path: Path, buffer_bytes: int, mode: int = 0o600, direct: int = DIRECT
    ) -> None:
        self.path, self.size = path, 0
        self._handle = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, direct, mode)
        self._buffer, self._filled = _anonymous(buffer_bytes), 0

    def append(self, data: memoryview) -> int:
        """Append the bytes; return the offset in the file at which they begin."""
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
                    _use_page_cache(self._handle)
        except OSError as error:
            set_error_file(error, self.path)
            raise
        finally:
            view.release()
        self._filled = 0

    def close(self) -> None:
        """Write the remaining bytes and close the file. Padding may fill its last block."""
        if self._handle >= 0:
            try:
                self._flush(-(-self._filled // BLOCK) * BLOCK)
            finally:
                self.abandon()

    def abandon(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            del self._buffer


class Hashed(Appended):
    """A file object for Arrow that computes the sha256 of the written bytes."""

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
        """Do nothing: `close` writes the rest, and the final rename makes the file durable."""

    @property
    def closed(self) -> bool:
        return self._handle < 0

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.truncate(self.path, self.size)


class Scratch:
    """A temporary file: `append` bytes, `close`, `read` from any thread, `remove` at the end."""

    def __init__(self, path: Path, buffer_bytes: int = BUFFER_BYTES, direct: int = DIRECT) -> None:
        self.path = path
        self._direct = direct
        self._file = Appended(path, buffer_bytes, direct=direct)
        self._own = threading.local()

    def append(self, data: memoryview) -> int:
        return self._file.append(data)

    def close(self) -> None:
        self._file.close()

    def read(self, pieces: list[tuple[int, int]]) -> tuple[memoryview, list[int]]:
        """Read pieces (offset, size) into one memory block; return (memory, start of each piece in
        it). The memory is valid until this thread reads again."""
        spans: list[list[int]] = []  # of the file, in whole blocks; adjacent pieces are merged
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
        # The buffer is kept between reads, since new pages cost more than the reading.
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
                _use_page_cache(handle)
                continue
            if not count:
                raise RunFailed(f"{self.path} is truncated; run the same command again")
            done += count

    def remove(self) -> None:
        """Delete the file and free the memory, even after a failure."""
        self._own = threading.local()
        self._file.abandon()
        self.path.unlink(missing_ok=True)


Piece = tuple[int, int]  # offset and size in a file


@dataclass(frozen=True)
class Stretch:
    """The place on disk of the rows of one call of `RowFile.add`."""

    text: Piece
    columns: Piece
    rows: int


@dataclass(frozen=True)
class RowBlock:
    """Rows in memory. Row i has the text texts[position[i]]; some entries of `texts` belong to no
    row."""

    texts: pa.LargeStringArray
    position: np.ndarray
    columns: pa.Table  # all columns; `text` holds only the length of each text

    def take(self, rows: np.ndarray) -> pa.Table:
        table = self.columns.take(pa.array(rows))
        texts = self.texts.take(pa.array(self.position[rows]))
        return table.set_column(table.column_names.index("text"), "text", texts)


class RowFile:
    """Rows on disk: `add` rows, `close`, `read` stretches from any thread, `remove` at the end."""

    def __init__(self, path: Path) -> None:
        self._texts = Scratch(path.with_name(f"{path.name}-texts"))
        self._columns = Scratch(path.with_name(f"{path.name}-columns"))
        self.schema: pa.Schema | None = None

    def add(self, table: pa.Table) -> Stretch:
        """Append rows. They must have the same columns as the rows added before. A null text
        becomes an empty text."""
        text = as_large_string(table["text"])
        text = text.fill_null("") if text.null_count else text
        data, offsets = text_buffers(text)
        first, last = int(offsets[0]), int(offsets[-1])
        lengths = pa.array(np.diff(offsets))
        table = table.set_column(table.column_names.index("text"), "text", lengths)
        (batch,) = table.combine_chunks().to_batches()
        self.schema = self.schema or batch.schema
        message = memoryview(batch.serialize())
        at = self._texts.append(data[first:last].data), self._columns.append(message)
        return Stretch((at[0], last - first), (at[1], len(message)), table.num_rows)

    def close(self) -> None:
        self._texts.close()
        self._columns.close()

    def read(self, stretches: list[Stretch]) -> RowBlock:
        """Return the rows of the stretches, in the order of the stretches. The rows are valid until
        this thread reads again."""
        memory, begins = self._columns.read([s.columns for s in stretches])
        columns = pa.Table.from_batches(
            [
                pa.ipc.read_record_batch(pa.py_buffer(memory[at : at + s.columns[1]]), self.schema)
                for at, s in zip(begins, stretches, strict=True)
            ],
            self.schema,
        ).combine_chunks()
        lengths = columns["text"].to_numpy()
        memory, begins = self._texts.read([s.text for s in stretches])
        offsets, positions, row, at = [], [], 0, 0
        for begin, stretch in zip(begins, stretches, strict=True):
            ends = np.cumsum(lengths[row : row + stretch.rows])
            offsets += [np.array([begin]), begin + ends]
            positions.append(np.arange(at, at + stretch.rows))
            row, at = row + stretch.rows, at + stretch.rows + 1
        # `take` reserves memory by the mean length and doubles it if that is too little. A last row
        # with the remaining memory, which is never taken, makes the mean large enough.
        offsets.append(np.array([len(memory)]))
        texts = text_array(np.frombuffer(memory, np.uint8), np.concatenate(offsets))
        return RowBlock(texts, np.concatenate(positions), columns)

    def empty(self) -> pa.Table:
        assert self.schema is not None
        at = self.schema.get_field_index("text")
        return self.schema.set(at, self.schema.field(at).with_type(pa.large_string())).empty_table()

    def remove(self) -> None:
        self._texts.remove()
        self._columns.remove()


class Copy:
    """The documents of all sources, stored to be read again without decoding. Call `add` in reading
    order, then `close`, then iterate over `runs`."""

    def __init__(self, path: Path) -> None:
        self._file = RowFile(path)
        self._stretches: list[Stretch] = []

    def add(self, table: pa.Table) -> None:
        self._stretches.append(self._file.add(table))

    def close(self) -> None:
        self._file.close()

    def runs(self, size: int) -> Iterator[RowBlock]:
        """Yield all rows in runs of about `size` bytes of text, each valid until the next run."""
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
        self._file.remove()


class Spill:
    """Rows by part (output file): `add` rows, `close`, then read a part's `rows` in any thread."""

    def __init__(self, path: Path) -> None:
        self._file = RowFile(path)
        self._stretches: dict[int, list[Stretch]] = {}

    def add(self, part: int, table: pa.Table) -> None:
        self._stretches.setdefault(part, []).append(self._file.add(table))

    def close(self) -> None:
        self._file.close()

    def rows(self, part: int) -> RowBlock | None:
        """Return the rows of a part in the order added, or None if the part is empty. Rows are
        valid until this thread asks for another part."""
        stretches = self._stretches.get(part)
        return self._file.read(stretches) if stretches else None

    def empty(self) -> pa.Table:
        return self._file.empty()

    def remove(self) -> None:
        self._file.remove()
