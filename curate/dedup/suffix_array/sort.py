"""Suffixes in order, chunk by chunk, so that the text may be larger than memory.

Sorting is libdivsufsort's (Mori; through pydivsufsort), with 32-bit positions: a chunk is less than
2^31 bytes and takes five bytes a byte while it is sorted. A chunk reaches one window beyond its
end, so that windows need not end where chunks do; only windows that are complete are kept. The
size of a chunk follows from the memory it may take, and nothing that is decided depends on it. Each
is a task.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.tasks import run_tasks
from curate.corpus.sketches import Run, Task
from curate.dedup.suffix_array.windows import Regions, continues, same_window
from llmcurate.base.disk.files import clear_temporary, replacing, reserve
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

MOST = 2**31 - 1  # bytes of what libdivsufsort sorts with 32-bit positions
SAME = np.uint32(1 << 31)  # no position needs this bit
# Bytes that a byte of a chunk takes at most: itself, its position (4), whether a window starts
# there.
PEAK = 6
TEXT, REGIONS = "regions.text", "regions.npy"
HELD = 1 << 26  # positions of a merge in memory: 256 MiB
_READ = 1 << 22
_BLOCK = 1024  # windows whose last bytes are read in one go


def suffix_array(data: np.ndarray) -> np.ndarray:
    """int32[len(data)]: the positions of all suffixes of data: uint8[] in order of their bytes."""
    from pydivsufsort import divsufsort

    if len(data) == 0:
        return np.empty(0, np.int32)
    if len(data) > MOST:
        raise ValueError(f"{len(data)} bytes are too many for one suffix array")
    order: np.ndarray = divsufsort(np.require(data, np.uint8, ["C", "W"]))
    return order


@njit(cache=True, nogil=True)
def _mark_starts(data, base, stop, at, length, window, chars, starts):
    """Sets starts[p - base] where a window starts at p in [base, stop) and ends in its region.

    data: the text from base on, as long as it is known (uint8 where chars); at, length: of the
    regions that reach into it.
    """
    read_end = base + len(data)
    for r in range(len(at)):
        first, last = max(at[r], base), min(at[r] + length[r], read_end)
        if chars:
            missing = window
            last = last - base
            while last > first - base and missing > 0:  # the window that ends the region
                last -= 1
                if not continues(data[last]):
                    missing -= 1
            if missing > 0:
                continue
            last = last + base + 1
        else:
            last = last - window + 1
        for p in range(first, min(last, stop)):
            if not chars or not continues(data[p - base]):
                starts[p - base] = True


@njit(cache=True, nogil=True)
def _keep_starts(order, width, starts):
    """Moves the positions (in bytes) where a window starts to the front, as symbols; how many."""
    n = 0
    for k in range(len(order)):
        position = order[k]
        if width > 1:
            if position % width:
                continue
            position //= width
        if starts[position]:
            order[n] = position
            n += 1
    return n


@njit(cache=True, nogil=True)
def _mark_same(data, order, window, width, chars):
    """Sets SAME on the positions whose window is that of the position before. order: uint32[].

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


@dataclass(frozen=True)
class RegionText:
    """The regions' text in a folder, and what its windows are. dtype: of the text; window: L;
    chars: of characters, not of symbols."""

    folder: Path
    dtype: str
    window: int
    chars: bool

    def dump(self) -> dict[str, Any]:
        """As JSON has it: what every task on the text is told."""
        return {**vars(self), "folder": str(self.folder)}

    @classmethod
    def load(cls, task: Task) -> RegionText:
        """The text that a task is about."""
        values = {field.name: task[field.name] for field in fields(cls)}
        return cls(**{**values, "folder": Path(task["folder"])})

    def text(self) -> Mapped:
        """The text, mapped."""
        return Mapped(self.folder / TEXT, np.dtype(self.dtype))

    def regions(self) -> Regions:
        """The regions, mapped."""
        return Regions.load(self.folder / REGIONS, mapped=True)


@dataclass(frozen=True)
class Orders:
    """The orders of all chunks, a file each. bases: the first position of each chunk; counts: its
    windows; a file holds uint32 positions relative to their base, with SAME where the window is
    that before."""

    folder: Path
    bases: list[int]
    counts: list[int]

    def path(self, chunk: int) -> Path:
        """The file of a chunk's order."""
        return order_path(self.folder, chunk)

    def part(
        self, begins: list[int], ends: list[int], scratch: Path, most: int = HELD
    ) -> np.ndarray:
        """uint32[]: of each chunk's order what stands from begin to end, one behind the other. More
        than `most` (one window may stand so often) lie in the folder `scratch`."""
        size = sum(ends) - sum(begins)
        if size <= most:
            out = np.empty(size, np.uint32)
        else:
            scratch.mkdir(exist_ok=True)
            out = np.asarray(np.memmap(scratch / "held.u32", np.uint32, "w+", shape=(size,)))
            reserve(scratch / "held.u32")
        done = 0
        for chunk, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            for first in range(begin, end, _READ):
                count = min(_READ, end - first)
                positions = np.fromfile(self.path(chunk), np.uint32, count, offset=4 * first)
                out[done : done + count] = positions
                done += count
        return out


def order_path(folder: Path, chunk: int) -> Path:
    """The file of a chunk's order."""
    return folder / f"order-{chunk:05d}.u32"


def sort(run: Run, region_text: RegionText, total: int, sort_bytes: int) -> Orders:
    """Sorts all chunks of a text of so many symbols; sort_bytes: of memory that a chunk may take.
    Chunks of an earlier try of the same sort are kept."""
    width = np.dtype(region_text.dtype).itemsize
    reach = _reach(region_text)
    size = min(max(sort_bytes // PEAK // width - reach, reach), (MOST // width) - reach)
    folder = region_text.folder / f"orders-{size}"
    folder.mkdir(exist_ok=True)
    clear_temporary(folder)
    bases = list(range(0, total, size))
    tasks = [
        {"part": part, "base": base, "stop": min(base + size, total), "to": str(folder)}
        for part, base in enumerate(bases)
        if not order_path(folder, part).exists()
    ]
    run_tasks(run, f"{__name__}:sort_chunk", [{**region_text.dump(), **task} for task in tasks])
    counts = [order_path(folder, part).stat().st_size // 4 for part in range(len(bases))]
    return Orders(folder, bases, counts)


def sort_chunk(task: Task) -> dict[str, Any]:
    """A task: the order of a chunk's windows. It takes PEAK bytes a byte of the chunk."""
    region_text = RegionText.load(task)
    text, regions = region_text.text(), region_text.regions()
    order = _sorted(text, regions, task["base"], task["stop"], region_text)
    with replacing(order_path(Path(task["to"]), task["part"])) as aside:
        order.tofile(aside)
    return {}


def _reach(region_text: RegionText) -> int:
    """Symbols behind the end of a chunk that its windows may need."""
    return 4 * region_text.window + 4 if region_text.chars else region_text.window


def _sorted(
    text: Mapped, regions: Regions, base: int, stop: int, region_text: RegionText
) -> np.ndarray:
    """uint32[windows]: those that start in text[base:stop], relative to base, in order."""
    part = text.part(base, stop + _reach(region_text))
    part.flags.writeable = False  # as mapped texts are: another type would be compiled once more
    first = int(np.searchsorted(regions.at, base, side="right")) - 1
    last = int(np.searchsorted(regions.at, stop))
    near = slice(max(first, 0), last)
    starts = np.zeros(len(part), np.bool_)
    at, length = regions.at[near], regions.length[near]
    _mark_starts(part, base, stop, at, length, region_text.window, region_text.chars, starts)
    data, width = part.view(np.uint8), part.itemsize
    order = suffix_array(data)
    order = order[: _keep_starts(order, width, starts)].view(np.uint32)
    _mark_same(data, order, region_text.window, width, region_text.chars)
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
