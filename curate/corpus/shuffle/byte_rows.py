"""Rows of bytes in slices, and arrays that may be larger than memory.

A writer gathers a segment of rows in memory, orders it by slice and appends it; in a slice rows
stay in the order in which they came. A task reads its slice of every segment of every writer, each
in one range, and opens the files of one writer at a time.

A large array lies in a mapped file, which the system may write out and read again.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curate.corpus.shuffle.tasks import part_file
from curate.text.buffers import text_buffers
from llmcurate.base.disk.files import remove, reserve, temporary_name

ROW_BYTES = 40  # that a row takes by itself while it is ordered: its slice, position and offsets


@contextmanager
def scratch_folder(folder: Path, name: str = "scratch") -> Iterator[Path]:
    """Make a folder in a folder for as long as a task runs."""
    scratch = folder / temporary_name(name)
    scratch.mkdir(exist_ok=True)
    try:
        yield scratch
    finally:
        remove(scratch, inside=folder)


def new_array(
    shape: int | tuple[int, ...], dtype: Any, folder: Path, mapped_bytes: int
) -> np.ndarray:
    """An array to be written to, of any values. From `mapped_bytes` on it lies in a file of the
    folder that has no name any more, so that nothing of it stays."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size < max(1, mapped_bytes):
        return np.empty(shape, dtype)
    path = folder / temporary_name("array")
    array = np.memmap(path, dtype, "w+", shape=shape)
    reserve(path)
    path.unlink()
    return array.view(np.ndarray)


def load_array(path: Path, dtype: Any, mapped_bytes: int) -> np.ndarray:
    """The numbers in a file, mapped from `mapped_bytes` on. What is written to them the file never
    sees."""
    if path.stat().st_size < max(1, mapped_bytes):
        return np.fromfile(path, dtype)
    return np.memmap(path, dtype, "c").view(np.ndarray)


def map_array(path: Path, dtype: Any) -> np.ndarray:
    """The numbers in a file, mapped into memory to be read."""
    if path.stat().st_size == 0:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r")


def unmap(array: np.ndarray) -> None:
    """Unmaps the pages of an array of `new_array` or `map_array`, where it has any; the system may
    keep them cached."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


def count_up(array: np.ndarray, batch: int = 1_000_000) -> None:
    """Writes 0, 1, ... into the array, so many at a time."""
    for begin in range(0, len(array), batch):
        stop = min(begin + batch, len(array))
        array[begin:stop] = np.arange(begin, stop, dtype=array.dtype)


class SliceFiles(NamedTuple):
    """rows: uint32[rows, columns], the numbers of each; data: their bytes, one after the other;
    starts: int64[segments, slices + 1, 2], before which row and byte each slice begins."""

    rows: Path
    data: Path
    starts: Path

    @classmethod
    def within(cls, folder: Path, kind: str, number: int = 0) -> SliceFiles:
        """Those of writer `number` in a folder."""
        names = (f"{kind}.u32", f"{kind}.bytes", f"{kind}-starts.npy")
        return cls(*(part_file(folder, name, number) for name in names))


class SliceWriter:
    """Writes rows of bytes in so many slices, `segment` bytes at a time."""

    def __init__(self, files: SliceFiles, slices: int, segment: int) -> None:
        self.slices = slices
        self._segment = segment
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._held = 0
        self._before = np.zeros(2, np.int64)  # rows and bytes that are written
        self._starts: list[np.ndarray] = []
        self._starts_path = files.starts
        self._rows, self._data = files.rows.open("wb"), files.data.open("wb")

    def add(
        self, slices: np.ndarray, rows: np.ndarray, offsets: np.ndarray, data: np.ndarray
    ) -> None:
        """Takes more rows, as they are until the next call or `close`. slices: the slice of each;
        rows: uint32[rows, columns]; offsets: int64[rows + 1], into `data`: uint8."""
        self._waiting.append((slices, rows, offsets, data))
        self._held += rows.nbytes + ROW_BYTES * len(rows) + int(offsets[-1] - offsets[0])
        if self._held >= self._segment or self.slices == 1:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        slices, rows = (np.concatenate([w[i] for w in self._waiting]) for i in (0, 1))
        arrays = [
            pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), len(w[1]), [None, pa.py_buffer(w[2]), pa.py_buffer(w[3])]
            )
            for w in self._waiting
        ]
        data_rows = pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]
        self._waiting, self._held = [], 0
        del arrays
        if self.slices > 1:
            # Of 16 bits numpy's stable sort is one by counting.
            order = np.argsort(slices.astype(np.uint16), kind="stable")
            rows, data_rows = rows[order], data_rows.take(pa.array(order))
        data, offsets = text_buffers(data_rows)
        ends = np.cumsum(np.bincount(slices, minlength=self.slices))
        starts = np.zeros((self.slices + 1, 2), np.int64)
        starts[1:, 0], starts[1:, 1] = ends, offsets[ends] - offsets[0]
        self._rows.write(np.ascontiguousarray(rows).data)
        self._data.write(data[offsets[0] : offsets[-1]].data)
        self._starts.append(starts + self._before)
        self._before += starts[-1]

    def close(self) -> None:
        """Ends the files."""
        self._flush()
        self._rows.close()
        self._data.close()
        starts = np.array(self._starts, np.int64).reshape(-1, self.slices + 1, 2)
        if self.slices == 1 and len(starts):
            starts = np.array([[starts[0, 0], starts[-1, 1]]])
        with self._starts_path.open("wb") as file:
            np.save(file, starts)


def read_slice(
    files: Sequence[SliceFiles], part: int, columns: int, scratch: Path, mapped_bytes: int
) -> tuple[np.ndarray, np.ndarray]:
    """(uint32[rows, columns], uint8 data) of a slice, of all writers in order. scratch,
    mapped_bytes: as `new_array` has them."""
    # Of a table as wide as there are slices only the part in question.
    tables = [np.load(each.starts, mmap_mode="r")[:, part : part + 2].copy() for each in files]
    total = sum((np.diff(t, axis=1).sum(axis=(0, 1)) for t in tables), np.zeros(2, np.int64))
    rows = new_array((int(total[0]), columns), np.uint32, scratch, mapped_bytes)
    data = new_array(int(total[1]), np.uint8, scratch, mapped_bytes)
    filled = np.zeros(2, np.int64)
    for each, table in zip(files, tables, strict=True):
        with each.rows.open("rb") as row_file, each.data.open("rb") as data_file:
            for begin, end in table:
                stop = filled + end - begin
                row_file.seek(int(begin[0]) * columns * 4)
                data_file.seek(int(begin[1]))
                row_file.readinto(rows[filled[0] : stop[0]].reshape(-1).view(np.uint8).data)
                data_file.readinto(data[filled[1] : stop[1]].data)
                filled = stop
    return rows, data
