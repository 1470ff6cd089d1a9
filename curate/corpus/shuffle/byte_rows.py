"""Rows of bytes, sorted into slices on disk, and arrays that may be larger than memory. A slice is
all rows for one reading task. A writer collects a segment of rows in memory, sorts the segment by
slice and appends it to its files. Rows within a slice keep their order. A task reads one range of
every segment of every writer, and opens the files of one writer at a time. Large arrays are
memory-mapped files, which the system may write out and read again."""

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
from llmcurate.base.disk.files import allocate, remove, temporary_name

ROW_BYTES = 40  # bytes of memory per row while rows are sorted: slice, position, offsets


@contextmanager
def scratch_folder(folder: Path, name: str = "scratch") -> Iterator[Path]:
    """Make a temporary folder inside `folder`. Remove it when the context ends."""
    scratch = folder / temporary_name(name)
    scratch.mkdir(exist_ok=True)
    try:
        yield scratch
    finally:
        remove(scratch, inside=folder)


def new_array(
    shape: int | tuple[int, ...], dtype: Any, folder: Path, mapped_bytes: int
) -> np.ndarray:
    """Return an array with undefined content. An array of `mapped_bytes` or more is mapped to a
    deleted file in the folder, so that nothing is left on disk."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if size < max(1, mapped_bytes):
        return np.empty(shape, dtype)
    path = folder / temporary_name("array")
    array = np.memmap(path, dtype, "w+", shape=shape)
    allocate(path)
    path.unlink()
    return array.view(np.ndarray)


def load_array(path: Path, dtype: Any, mapped_bytes: int) -> np.ndarray:
    """Return the numbers in a file as an array. A file of `mapped_bytes` or more is mapped into
    memory. Changes to the array do not reach the file."""
    if path.stat().st_size < max(1, mapped_bytes):
        return np.fromfile(path, dtype)
    return np.memmap(path, dtype, "c").view(np.ndarray)


def map_array(path: Path, dtype: Any) -> np.ndarray:
    """Return the numbers in a file as a read-only array that is mapped into memory."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r")


def unmap(array: np.ndarray) -> None:
    """Release the memory of an array from `new_array` or `map_array`, if the array is mapped."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


def count_up(array: np.ndarray, batch: int = 1_000_000) -> None:
    """Write 0, 1, ... into the array, `batch` numbers at a time."""
    for begin in range(0, len(array), batch):
        stop = min(begin + batch, len(array))
        array[begin:stop] = np.arange(begin, stop, dtype=array.dtype)


class SliceFiles(NamedTuple):
    """The files that one SliceWriter writes."""

    rows: Path  # uint32[rows, columns]: the numbers of each row
    data: Path  # uint8[bytes]: the bytes of all rows
    starts: Path  # int64[segments, slices + 1, 2]: first row and first byte of each slice

    @classmethod
    def within(cls, folder: Path, kind: str, number: int = 0) -> SliceFiles:
        """Return the paths of the files that writer `number` writes in a folder."""
        names = (f"{kind}.u32", f"{kind}.bytes", f"{kind}-starts.npy")
        return cls(*(part_file(folder, name, number) for name in names))


class SliceWriter:
    """A writer of rows of bytes. About `segment` bytes of rows are sorted at a time, by slice. A
    slice is all rows that one later task reads."""

    def __init__(self, files: SliceFiles, slices: int, segment: int) -> None:
        self.slices = slices
        self._segment = segment
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._held = 0
        self._before = np.zeros(2, np.int64)  # rows and bytes already written
        self._starts: list[np.ndarray] = []
        self._starts_path = files.starts
        self._rows, self._data = files.rows.open("wb"), files.data.open("wb")

    def add(
        self, slices: np.ndarray, rows: np.ndarray, offsets: np.ndarray, data: np.ndarray
    ) -> None:
        """Add rows. `slices`: the number of each row's slice (input of a later task). `rows`:
        uint32[rows, columns]. `offsets`: int64[rows + 1], where each row's bytes begin in `data`
        (uint8). The arrays must not change until the next call of `add` or `close`."""
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
            # For 16 bits numpy's stable sort is a counting sort.
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
    """Return (numbers, bytes) of the rows of slice `part`, from the files of all writers in order.
    Each row has `columns` numbers (uint32[rows, columns]) and some bytes (uint8, all rows
    concatenated). Both arrays are made by `new_array` with `scratch` and `mapped_bytes`."""
    # Only two columns of a table with a column per slice.
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
