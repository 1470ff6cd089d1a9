"""Sorting what is larger than memory: runs sorted in memory, written to disk, merged in one pass.

Files are columns of raw numbers; they are read back memory-mapped and in order, so that the
operating system holds only what is being worked on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from curate.scoring.perplexity.keys import less, sort_order
from kernel_cache import njit

CHUNK = 1 << 18  # rows that a merge gives at once


class Column:
    """A file of numbers that grows at its end and is read memory-mapped."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype, self.rows = path, np.dtype(dtype), 0
        self._file = open(path, "wb")  # noqa: SIM115

    def append(self, values: np.ndarray) -> None:
        """Adds values at the end."""
        self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.rows += len(values)

    def array(self) -> np.ndarray:
        """All values so far; memory-mapped, writable."""
        self._file.flush()
        if self.rows == 0:
            return np.empty(0, self.dtype)
        return np.asarray(np.memmap(self.path, self.dtype, "r+", shape=(self.rows,)))

    def close(self) -> None:
        """No more is added; arrays stay readable."""
        self._file.close()

    def remove(self) -> None:
        """The file goes; arrays that are open stay readable."""
        self.close()
        self.path.unlink(missing_ok=True)


def mapped(path: Path, rows: int, dtype: str) -> np.ndarray:
    """A new file of zeros as an array."""
    if rows == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "w+", shape=(rows,)))


@njit(nogil=True)
def _sift(heap, size, at, hi, lo, heads):
    """Moves the run at heap[at] down to its place."""
    run = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            a, b = heads[heap[child + 1]], heads[heap[child]]
            if less(hi[a], lo[a], hi[b], lo[b]) or (
                hi[a] == hi[b] and lo[a] == lo[b] and heap[child + 1] < heap[child]
            ):
                child += 1
        a, b = heads[heap[child]], heads[run]
        first = less(hi[a], lo[a], hi[b], lo[b])
        if not first and not (hi[a] == hi[b] and lo[a] == lo[b] and heap[child] < run):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = run


@njit(cache=True, nogil=True)
def _start(hi, lo, heads, ends, heap):
    """Makes the heap of the runs that hold anything; returns its size."""
    size = np.int64(0)
    for r in range(len(heads)):
        if heads[r] < ends[r]:
            heap[size] = r
            size += 1
    for at in range(size // 2, -1, -1):
        if at < size:
            _sift(heap, size, at, hi, lo, heads)
    return size


@njit(cache=True, nogil=True)
def _merge(hi, lo, heads, ends, heap, size, out):
    """Fills out: int64[n] with the rows that come next; returns (rows, the heap's size)."""
    n = 0
    while n < len(out) and size > 0:
        run = heap[0]
        out[n] = heads[run]
        n += 1
        heads[run] += 1
        if heads[run] == ends[run]:
            size -= 1
            heap[0] = heap[size]
        if size > 0:
            _sift(heap, size, np.int64(0), hi, lo, heads)
    return n, size


class Sorter:
    """Rows with a key of 128 bits and further columns, sorted by key; equal keys in the order in
    which they came."""

    def __init__(self, folder: Path, name: str, bits: int, rows: int, columns: dict[str, str]):
        """rows: of a run, which is sorted in memory; columns: name -> dtype."""
        self.bits, self.most = bits, max(1, rows)
        kinds = {"hi": "u8", "lo": "u8", **columns}
        self._files = {c: Column(folder / f"{name}.{c}.run", d) for c, d in kinds.items()}
        self._ends: list[int] = [0]

    def add(self, *columns: np.ndarray) -> None:
        """Takes rows, a column each: hi, lo, then the further ones."""
        for begin in range(0, len(columns[0]), self.most):
            part = [c[begin : begin + self.most] for c in columns]
            order = sort_order(part[0], part[1], self.bits)
            for file, values in zip(self._files.values(), part, strict=True):
                file.append(values[order])
            self._ends.append(self._ends[-1] + len(order))

    @property
    def runs(self) -> int:
        """How many runs there are so far."""
        return len(self._ends) - 1

    def sorted(self) -> Iterator[tuple[np.ndarray, ...]]:
        """All rows in order, in chunks of the columns as they were added."""
        arrays = [f.array() for f in self._files.values()]
        hi, lo = arrays[:2]
        heads, ends = np.array(self._ends[:-1], np.int64), np.array(self._ends[1:], np.int64)
        heap, out = np.empty(len(heads) + 1, np.int64), np.empty(CHUNK, np.int64)
        size = _start(hi, lo, heads, ends, heap)
        while size:
            n, size = _merge(hi, lo, heads, ends, heap, size, out)
            yield tuple(a[out[:n]] for a in arrays)

    def remove(self) -> None:
        """Its files go."""
        for file in self._files.values():
            file.remove()
