"""n-grams as 128-bit keys, and sorting of more keys than fit into memory.

A key is (hi, lo): uint64, the last word highest, so that the order of keys is the suffix order of
Heafield et al. 2013: n-grams with a common suffix stand together. With B bits a word, the n-gram of
the last n words of an N-gram is its key >> (N - n)B.

Runs are sorted in memory, written to disk and merged in one pass. Files are columns of raw numbers;
they are read back memory-mapped and in order, so that the operating system holds only the part that
is being worked on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from llmcurate.base.disk.files import reserve
from llmcurate.base.kernels import njit

BITS = 128
BOS = 1  # the id of <s>
_64 = np.uint64(64)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_DIGIT = 11  # bits that a pass of the sort looks at


@njit(nogil=True, inline="always")
def shift_right(hi, lo, k):
    """(hi, lo) >> k; k: uint64 below 128."""
    if k == 0:
        return hi, lo
    if k >= _64:
        return np.uint64(0), hi >> (k - _64) if k < np.uint64(128) else np.uint64(0)
    return hi >> k, (lo >> k) | (hi << (_64 - k))


@njit(nogil=True, inline="always")
def shift_left(hi, lo, k):
    """(hi, lo) << k; k: uint64 below 128."""
    if k == 0:
        return hi, lo
    if k >= _64:
        return lo << (k - _64) if k < np.uint64(128) else np.uint64(0), np.uint64(0)
    return (hi << k) | (lo >> (_64 - k)), lo << k


@njit(nogil=True, inline="always")
def low_bits(hi, lo, k):
    """The k lowest bits of (hi, lo)."""
    if k >= _64:
        if k == _64:
            return np.uint64(0), lo
        return hi & (_ALL >> (np.uint64(128) - k)), lo
    return np.uint64(0), lo & ((_ONE << k) - _ONE)


@njit(nogil=True, inline="always")
def less(ahi, alo, bhi, blo):
    """Whether key a stands before key b."""
    return ahi < bhi or (ahi == bhi and alo < blo)


@njit(cache=True, nogil=True)
def ngram_keys(ids, ends, order, bits):
    """(hi, lo) of the n-gram that ends at each word and at the </s> (id 2) of each sentence.

    ids: uint32[words]; ends: int64[sentences], where each sentence ends. Beginnings are filled up
    with <s>.
    """
    n = len(ids) + len(ends)
    hi, lo = np.empty(n, np.uint64), np.empty(n, np.uint64)
    width, top = np.uint64(bits), np.uint64((order - 1) * bits)
    bhi, blo = np.uint64(0), np.uint64(0)
    for _ in range(order):
        bhi, blo = shift_left(bhi, blo, width)
        blo |= np.uint64(BOS)
    k = begin = 0
    for s in range(len(ends)):
        ahi, alo = bhi, blo
        for i in range(begin, ends[s] + 1):
            word = np.uint64(ids[i]) if i < ends[s] else np.uint64(2)
            whi, wlo = shift_left(np.uint64(0), word, top)
            ahi, alo = shift_right(ahi, alo, width)
            ahi |= whi
            alo |= wlo
            hi[k], lo[k] = ahi, alo
            k += 1
        begin = ends[s]
    return hi, lo


@njit(cache=True, nogil=True)
def context_keys(hi, lo, order, bits):
    """The keys that sort n-grams of that order by context, then by last word: the last word moves
    to the lowest place, and the context before it stands as the key of an (n-1)-gram."""
    outh, outl = np.empty_like(hi), np.empty_like(lo)
    width, rest = np.uint64(bits), np.uint64((order - 1) * bits)
    for i in range(len(hi)):
        _, word = shift_right(hi[i], lo[i], rest)
        chi, clo = low_bits(hi[i], lo[i], rest)
        chi, clo = shift_left(chi, clo, width)
        outh[i], outl[i] = chi, clo | word
    return outh, outl


@njit(cache=True, nogil=True)
def words_of(hi, lo, order, bits):
    """uint32[n, order]: the words of each n-gram, the first word first."""
    out = np.empty((len(hi), order), np.uint32)
    width = np.uint64(bits)
    mask = (_ONE << width) - _ONE
    for i in range(len(hi)):
        ahi, alo = hi[i], lo[i]
        for k in range(order):
            out[i, k] = alo & mask
            ahi, alo = shift_right(ahi, alo, width)
    return out


@njit(cache=True, nogil=True)
def sort_order(hi, lo, bits):
    """int64[n]: the stable order of keys of so many bits; a radix sort, lowest digits first."""
    n = len(hi)
    order, other = np.arange(n), np.empty(n, np.int64)
    shi, slo = hi.copy(), lo.copy()
    thi, tlo = np.empty_like(hi), np.empty_like(lo)
    counts = np.empty((1 << _DIGIT) + 1, np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    for first in range(0, bits, _DIGIT):
        counts[:] = 0
        shift = np.uint64(first)
        for i in range(n):
            _, low = shift_right(shi[i], slo[i], shift)
            counts[np.int64(low & mask) + 1] += 1
        for k in range(1 << _DIGIT):
            counts[k + 1] += counts[k]
        for i in range(n):
            _, low = shift_right(shi[i], slo[i], shift)
            d = np.int64(low & mask)
            at = counts[d]
            counts[d] = at + 1
            thi[at], tlo[at], other[at] = shi[i], slo[i], order[i]
        shi, thi = thi, shi
        slo, tlo = tlo, slo
        order, other = other, order
    return order


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
    array = np.asarray(np.memmap(path, dtype, "w+", shape=(rows,)))
    reserve(path)
    return array


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
