"""Rows of bytes, cut into slices by the task that is to read them.

A writer gathers a segment in memory, orders it by slice and appends it; in a slice rows stay in
the order in which they came. A task reads its slice of every segment of every writer, each in one
range, and opens the files of one writer at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curate.corpus.shuffle.arrays import new_array
from curate.text.buffers import text_buffers

SEGMENT = 32 << 20  # bytes that are ordered at once; three times as many are held
ROW = 40  # bytes that a row takes by itself while it is ordered: slice, place, offsets


class SliceFiles(NamedTuple):
    """rows: uint32[rows, columns], the numbers of each; data: their bytes, one after the other;
    starts: int64[segments, slices + 1, 2], before which row and byte each slice begins."""

    rows: Path
    data: Path
    starts: Path

    @classmethod
    def within(cls, folder: Path, kind: str, number: int = 0) -> SliceFiles:
        """Those of writer `number` in a folder."""
        name = f"{kind}-{number:05d}"
        return cls(folder / f"{name}.u32", folder / f"{name}.bytes", folder / f"{name}-starts.npy")


class SliceWriter:
    """Writes rows of bytes in so many slices."""

    def __init__(self, files: SliceFiles, slices: int) -> None:
        self.slices = slices
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
        self._held += rows.nbytes + ROW * len(rows) + int(offsets[-1] - offsets[0])
        if self._held >= SEGMENT or self.slices == 1:
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
        held = pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]
        self._waiting, self._held = [], 0
        del arrays
        if self.slices > 1:
            # Of 16 bits numpy's stable sort is one by counting.
            order = np.argsort(slices.astype(np.uint16), kind="stable")
            rows, held = rows[order], held.take(pa.array(order))
        data, offsets = text_buffers(held)
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
    files: Sequence[SliceFiles], part: int, columns: int, scratch: Path
) -> tuple[np.ndarray, np.ndarray]:
    """(uint32[rows, columns], uint8 data) of a slice, of all writers in order. scratch: a folder
    for what is large (`new_array`)."""
    # Of a table as wide as there are slices only the part in question.
    tables = [np.load(each.starts, mmap_mode="r")[:, part : part + 2].copy() for each in files]
    total = sum((np.diff(t, axis=1).sum(axis=(0, 1)) for t in tables), np.zeros(2, np.int64))
    rows = new_array((int(total[0]), columns), np.uint32, scratch)
    data = new_array(int(total[1]), np.uint8, scratch)
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
