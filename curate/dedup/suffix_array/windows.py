"""Windows, L symbols of a document from a position on, and the regions that they form.

A text is a run of symbols of `width` bytes each: bytes (width 1), or tokens (2 or 4). A window is
L symbols, or, in `characters`, L UTF-8 characters of at least L bytes. Among windows of so many
characters none is the beginning of another, so in an order by bytes equal ones stand together.
All positions are in symbols.

A region is a run of overlapping windows in one document that may stand twice; only the text of
regions is sorted. Documents come in order of preference, so of two positions the preferred one is
the lesser number. No window crosses a region's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmcurate.base.disk.files import replacing
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


@njit(nogil=True, inline="always")
def continues(byte):
    """Whether a byte is inside of a UTF-8 character."""
    return (byte & 0xC0) == 0x80


@njit(nogil=True)
def starts_within(data, i, size):
    """Characters that start in data[i : i + size]."""
    inside = np.uint64(0)
    k = np.int64(0)
    while k + 8 <= size:
        x = load8(data, np.uint64(i + k))
        bits = (x >> np.uint64(7)) & (~x >> np.uint64(6)) & _ONES
        inside += (bits * _ONES) >> np.uint64(56)
        k += 8
    continuing = np.int64(inside)
    while k < size:
        continuing += continues(data[i + k])
        k += 1
    return size - continuing


@njit(nogil=True)
def window_end(data, i, window, chars, stop):
    """The end of the window from i, in symbols; -1 where it does not end by `stop`.

    data: uint8[], of a text of bytes where chars, else anything.
    """
    if i + window > stop:
        return np.int64(-1)
    if not chars:
        return np.int64(i + window)
    missing = window - starts_within(data, i, window)
    k = i + window
    while k < stop:
        if not continues(data[k]):
            if missing == 0:
                return np.int64(k)
            missing -= 1
        k += 1
    return np.int64(k) if missing == 0 else np.int64(-1)


@njit(nogil=True)
def same_window(data, i, j, window, width, chars):
    """Whether the windows from i and j, both complete, are equal. data: uint8[], all bytes."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    if size >= 8:
        # Neighbours in an order share their beginnings, so the last bytes tell them apart.
        x = load8(data, np.uint64(a + size - 8))
        if x != load8(data, np.uint64(b + size - 8)):
            return False
        while k + 32 <= size:
            first = load8(data, np.uint64(a + k))
            second = load8(data, np.uint64(a + k + 8))
            third = load8(data, np.uint64(a + k + 16))
            fourth = load8(data, np.uint64(a + k + 24))
            other = (first ^ load8(data, np.uint64(b + k))) | (
                second ^ load8(data, np.uint64(b + k + 8))
            )
            other |= (third ^ load8(data, np.uint64(b + k + 16))) | (
                fourth ^ load8(data, np.uint64(b + k + 24))
            )
            if other != 0:
                return False
            x |= first | second | third | fourth
            k += 32
        while k + 8 < size:
            first = load8(data, np.uint64(a + k))
            if first != load8(data, np.uint64(b + k)):
                return False
            x |= first
            k += 8
        if x & _HIGH == 0:  # every byte is a character
            return True
    else:
        while k < size:
            if data[a + k] != data[b + k]:
                return False
            k += 1
    if not chars:
        return True
    missing = window - starts_within(data, a, size)
    k = size
    while a + k < len(data) and b + k < len(data):
        if not continues(data[a + k]):
            if missing == 0:
                return True
            missing -= 1
        if data[a + k] != data[b + k]:
            return False
        k += 1
    return missing == 0


@njit(nogil=True)
def order_of(data, i, j, window, width, chars):
    """-1, 0 or 1 as the window from i stands before, with or after the one from j, by bytes."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    while k + 8 <= size:
        if load8(data, np.uint64(a + k)) != load8(data, np.uint64(b + k)):
            break
        k += 8
    missing = np.int64(-1)
    while a + k < len(data) and b + k < len(data):
        if k >= size:
            if not chars:
                return 0
            if missing < 0:
                missing = window - starts_within(data, a, k)
            if not continues(data[a + k]):
                if missing == 0:
                    return 0
                missing -= 1
        if data[a + k] != data[b + k]:
            return -1 if data[a + k] < data[b + k] else 1
        k += 1
    return 0


_COPY = 32 << 20  # symbols that are moved at a time


@dataclass(frozen=True)
class Regions:
    """int64[regions] each, ordered by at. document: its number in order of arrival; start: the
    region's in the document; at: in the regions' text; length; all in symbols."""

    document: np.ndarray
    start: np.ndarray
    at: np.ndarray
    length: np.ndarray

    @property
    def symbols(self) -> int:
        """Of all regions together."""
        return int(self.at[-1] + self.length[-1]) if len(self.at) else 0

    def save(self, path: Path) -> None:
        """Writes them as one array, whole or not at all."""
        with replacing(path) as aside, aside.open("wb") as file:
            np.save(file, np.stack([self.document, self.start, self.at, self.length]))

    @classmethod
    def load(cls, path: Path, mapped: bool = False) -> Regions:
        """The object that `save` wrote; mapped: what is not looked at takes no memory."""
        # "c", since arrays that may be written to are of the type that kernels are compiled for.
        columns = np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
        return cls(*np.asarray(columns))


@njit(cache=True, nogil=True)
def find_regions(data, offsets, marks, window, chars):
    """(rows, start, end: int64[regions]): the runs of overlapping windows that are marked.

    data: uint8[] (looked at only where chars); offsets: int64[rows + 1], in symbols; marks:
    bool[offsets[-1] - offsets[0]]. start, end: as offsets.
    """
    base = offsets[0]
    rows = np.empty(16, np.int64)
    start = np.empty(16, np.int64)
    end = np.empty(16, np.int64)
    n = 0
    for r in range(len(offsets) - 1):
        open_ = False
        before = stop = -1  # the last position whose window's end is known, and that end
        for i in range(offsets[r], offsets[r + 1]):
            if not marks[i - base] or (chars and continues(data[i])):
                continue
            if chars and before >= 0 and i < stop:
                for k in range(before, i):  # a character out, a character in
                    if not continues(data[k]) and stop >= 0:
                        stop = _next(data, stop, offsets[r + 1])
            else:
                stop = window_end(data, i, window, chars, offsets[r + 1])
            if stop < 0:
                break  # nor does any later one
            before = i
            if open_ and i <= end[n - 1]:
                end[n - 1] = stop
                continue
            if n == len(rows):
                rows, start, end = _longer(rows), _longer(start), _longer(end)
            rows[n], start[n], end[n] = r, i, stop
            open_ = True
            n += 1
    return rows[:n].copy(), start[:n].copy(), end[:n].copy()


@njit(nogil=True)
def _next(data, i, stop):
    """The start of the character behind the one at i; -1 where none stands at i."""
    if i >= stop:
        return np.int64(-1)
    i += 1
    while i < stop and continues(data[i]):
        i += 1
    return np.int64(i)


@njit(nogil=True, allocates=True)
def _longer(values):
    out = np.empty(2 * len(values), values.dtype)
    out[: len(values)] = values
    return out


@njit(cache=True, nogil=True)
def _gather(symbols, start, length, out):
    """Puts symbols[start[i] : start[i] + length[i]] one behind the other into out."""
    n = 0
    for i in range(len(start)):
        for k in range(start[i], start[i] + length[i]):
            out[n] = symbols[k]
            n += 1


class RegionsWriter:
    """Collects the regions of documents as they arrive."""

    def __init__(self, path: Path, window: int, chars: bool) -> None:
        """path: a file for their text; window: L; chars: of characters, not of symbols."""
        self._file = path.open("wb")
        self._window, self._chars = window, chars
        self._found: list[tuple[np.ndarray, ...]] = []

    def add(self, first: int, symbols: np.ndarray, offsets: np.ndarray, marks: np.ndarray) -> None:
        """Documents from number `first` on: symbols, offsets, and marks as `Sieve` gives them."""
        data = symbols if self._chars else np.empty(0, np.uint8)
        rows, start, end = find_regions(data, offsets, marks, self._window, self._chars)
        out = np.empty(int((end - start).sum()), symbols.dtype)
        _gather(symbols, start, end - start, out)
        out.tofile(self._file)
        self._found.append((first + rows, start - offsets[rows], end - start))

    def close(self) -> Regions:
        """The regions in order of arrival; their text is complete."""
        self._file.close()
        empty = (np.empty(0, np.int64),) * 3
        columns = zip(*(self._found or [empty]), strict=True)
        document, start, length = (np.concatenate(column) for column in columns)
        return Regions(document, start, np.cumsum(length) - length, length)


def preferred(regions: Regions, rank: np.ndarray, text: np.ndarray, path: Path) -> Regions:
    """The regions ordered by their documents' ranks, and their text, moved from `text` to path.

    rank: int64[documents], the position of each document in the order of preference.
    """
    order = np.lexsort((regions.start, rank[regions.document]))
    length = regions.length[order]
    ends = np.cumsum(length)
    with path.open("wb") as file:
        a = 0
        while a < len(order):
            limit = (ends[a - 1] if a else 0) + _COPY
            z = max(a + 1, int(np.searchsorted(ends, limit, side="right")))
            out = np.empty(int(length[a:z].sum()), text.dtype)
            _gather(text, regions.at[order[a:z]], length[a:z], out)
            out.tofile(file)
            a = z
    return Regions(regions.document[order], regions.start[order], ends - length, length)
