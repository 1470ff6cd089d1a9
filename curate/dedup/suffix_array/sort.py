"""Suffixes in order, chunk by chunk, so that the text may be larger than memory.

Sorting is libdivsufsort's (Mori; through pydivsufsort), with 32-bit places: a chunk is less than
2^31 bytes and takes five bytes a byte while it is sorted. A chunk reaches one window beyond its
end, so that windows need not end where chunks do; only windows that are complete are kept.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import numpy as np
from numba import njit

from curate.atomic import write_text
from curate.dedup.suffix_array.regions import Regions
from curate.dedup.suffix_array.windows import continues, same_window
from curate.text.hashing import load8

MOST = 2**31 - 1  # bytes of what libdivsufsort sorts with 32-bit places
SAME = np.uint32(1 << 31)  # no place needs this bit
# Bytes that a byte of a chunk takes at most: itself, its place (4), whether a window starts there.
PEAK = 6
_BLOCK = 1024  # windows whose last bytes are read in one go


def suffix_array(data: np.ndarray) -> np.ndarray:
    """int32[len(data)]: the places of all suffixes of data: uint8[] in order of their bytes."""
    from pydivsufsort import divsufsort

    if len(data) == 0:
        return np.empty(0, np.int32)
    if len(data) > MOST:
        raise ValueError(f"{len(data)} bytes are too many for one suffix array")
    found: np.ndarray = divsufsort(np.require(data, np.uint8, ["C", "W"]))
    return found


@njit(cache=True, nogil=True)
def _mark_starts(data, base, stop, at, length, window, chars, starts):
    """Sets starts[p - base] where a window starts at p in [base, stop) and ends in its region.

    data: the text from base on, as long as it is known (uint8 where chars); at, length: of the
    regions that reach into it.
    """
    known = base + len(data)
    for r in range(len(at)):
        first, last = max(at[r], base), min(at[r] + length[r], known)
        if chars:
            left = window
            last = last - base
            while last > first - base and left > 0:  # the window that ends the region
                last -= 1
                if not continues(data[last]):
                    left -= 1
            if left > 0:
                continue
            last = last + base + 1
        else:
            last = last - window + 1
        for p in range(first, min(last, stop)):
            if not chars or not continues(data[p - base]):
                starts[p - base] = True


@njit(cache=True, nogil=True)
def _keep_starts(order, width, starts):
    """Moves the places (in bytes) where a window starts to the front, as symbols; how many."""
    n = 0
    for k in range(len(order)):
        place = order[k]
        if width > 1:
            if place % width:
                continue
            place //= width
        if starts[place]:
            order[n] = place
            n += 1
    return n


@njit(cache=True, nogil=True)
def _mark_same(data, order, window, width, chars):
    """Sets SAME on the places whose window is that of the place before. order: uint32[].

    Windows in order lie anywhere in the text, and most neighbours differ. So the last bytes of many
    are read in one go, which does not wait for each, and only windows that agree in them are
    compared.
    """
    size = window * width
    lasts = np.zeros(_BLOCK + 1, np.uint64)
    high = len(order) - 1
    while high > 0:
        low = max(0, high - _BLOCK)
        if size >= 8:
            for k in range(low, high + 1):
                lasts[k - low] = load8(data, np.uint64(np.int64(order[k]) * width + size - 8))
        for k in range(high, low, -1):
            if lasts[k - low] == lasts[k - low - 1] and same_window(
                data, np.int64(order[k - 1]), np.int64(order[k]), window, width, chars
            ):
                order[k] |= SAME
        high = low


class Orders:
    """The orders of all chunks in one file, one behind the other, and a record of what is done.

    bases: int64[chunks], the first place of each chunk; counts: int64[chunks], its windows; the
    file holds uint32 places relative to their base, with SAME where the window is that before.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._record = folder / "orders.u32", folder / "orders.json"
        self.bases: list[int] = []
        self.counts: list[int] = []

    def sort(self, text: Mapped, regions: Regions, window: int, chars: bool, room: int) -> None:
        """Sorts all chunks of the regions' text; room: bytes of memory. Chunks of an earlier try of
        the same sort are kept."""
        width, total = text.values.itemsize, len(text.values)
        reach = 4 * window + 4 if chars else window
        size = min(max(room // PEAK // width - reach, reach), (MOST // width) - reach)
        done = self._done([total, size, window, chars])
        with self._path.open("r+b" if done else "wb") as file:
            file.truncate(4 * sum(done))
            file.seek(0, os.SEEK_END)
            for number, base in enumerate(range(0, total, size)):
                self.bases.append(base)
                if number < len(done):
                    self.counts.append(done[number])
                    continue
                order = _sorted(text, regions, base, min(base + size, total), window, chars)
                order.tofile(file)
                file.flush()
                os.fsync(file.fileno())
                self.counts.append(len(order))
                record = {"of": [total, size, window, chars], "counts": self.counts}
                write_text(self._record, json.dumps(record))

    def _done(self, of: list[int]) -> list[int]:
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return list(record["counts"]) if record["of"] == of else []

    def places(self) -> Mapped:
        """uint32[windows of all chunks], SAME included."""
        if not self._path.exists():
            self._path.touch()
        return Mapped(self._path, np.dtype(np.uint32))


def _sorted(
    text: Mapped, regions: Regions, base: int, stop: int, window: int, chars: bool
) -> np.ndarray:
    """uint32[windows]: those that start in text[base:stop], relative to base, in order."""
    reach = 4 * window + 4 if chars else window
    part = text.part(base, stop + reach)
    part.flags.writeable = False  # as mapped texts are: another type would be compiled once more
    first = int(np.searchsorted(regions.at, base, side="right")) - 1
    last = int(np.searchsorted(regions.at, stop))
    near = slice(max(first, 0), last)
    starts = np.zeros(len(part), np.bool_)
    at, length = regions.at[near], regions.length[near]
    _mark_starts(part, base, stop, at, length, window, chars, starts)
    data, width = part.view(np.uint8), part.itemsize
    order = suffix_array(data)
    order = order[: _keep_starts(order, width, starts)].view(np.uint32)
    _mark_same(data, order, window, width, chars)
    return order


class Mapped:
    """A file's values, mapped: values: dtype[]; an empty file is an empty array."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.path = path
        self._map = None
        self.values = np.empty(0, dtype)
        self.values.flags.writeable = False  # as a map's are
        if path.stat().st_size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.values = np.frombuffer(self._map, dtype)

    def part(self, start: int, stop: int) -> np.ndarray:
        """A copy of values[start:stop], read without leaving pages mapped."""
        dtype = self.values.dtype
        count = max(0, min(stop, len(self.values)) - start)
        return np.fromfile(self.path, dtype, count, offset=start * dtype.itemsize)

    def forget(self) -> None:
        """Lets go of the pages that were read, which count as this process's memory; the system
        still has them."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
