"""Suffixes in order, chunk by chunk, and their merge to passages, so that text may exceed memory.

Sorting is libdivsufsort's (Mori; through pydivsufsort), with 32-bit positions: a chunk is less than
2^31 bytes and takes five bytes a byte while it is sorted. A chunk reaches one window beyond its
end, so that windows need not end where chunks do; only windows that are complete are kept. The
size of a chunk follows from the memory it may take, and nothing that is decided depends on it. Each
is a task.

The orders are cut at a few windows, each at the same ones, so that what lies between two cuts is a
merge of its own: all positions of a window are on one side. A task writes its windows that go, by
ranges of positions. Ranges begin with a region, which no passage leaves, so joining each is a task
too. A task holds 4 bytes a window or 8 a position, some 130 or 270 MB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.tasks import FolderTask, part_file, run_tasks
from curate.corpus.sketches import Run
from curate.dedup.suffix_array.windows import (
    REGIONS,
    TEXT,
    Mapped,
    Regions,
    continues,
    order_of,
    same_window,
    window_end,
)
from llmcurate.base.disk.files import clear_temporary, remove, replacing, reserve, temporary_name
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

MOST = 2**31 - 1  # bytes of what libdivsufsort sorts with 32-bit positions
SAME = np.uint32(1 << 31)  # no position needs this bit
# Bytes that a byte of a chunk takes at most: itself, its position (4), whether a window starts
# there.
PEAK = 6
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
        return part_file(self.folder, ORDER_FILE, chunk)

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


ORDER_FILE = "order.u32"  # of a chunk


@dataclass(frozen=True)
class SortTask(FolderTask):
    """The windows that start from `base` to `stop` are to be put in order."""

    text: RegionText
    base: int
    stop: int


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
        SortTask(part, folder, region_text, base, min(base + size, total))
        for part, base in enumerate(bases)
    ]
    missing = [task for task in tasks if not task.file(ORDER_FILE).exists()]
    run_tasks(run, f"{__name__}:sort_chunk", missing)
    return Orders(folder, bases, [task.file(ORDER_FILE).stat().st_size // 4 for task in tasks])


def sort_chunk(task: SortTask) -> None:
    """A task: the order of a chunk's windows. It takes PEAK bytes a byte of the chunk."""
    text, regions = task.text.text(), task.text.regions()
    order = _sorted(text, regions, task.base, task.stop, task.text)
    with replacing(task.file(ORDER_FILE)) as aside:
        order.tofile(aside)


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


# The chunks' orders are read side by side through a heap of their heads. Where the first head's
# window stands at the head of several orders, all its positions are the beginnings of these orders.

POSITION_BITS = ~SAME
FLUSH = 1 << 20  # positions that are returned at a time
# Where a merge stands between two calls: orders in the heap, orders of the group at hand, the one
# of them that is written, and the group's first and second position.
_HEAP, _GROUP, _AT, _FIRST, _SECOND = range(5)


@njit(nogil=True, inline="always")
def _position(positions, bases, next_, s):
    return bases[s] + np.int64(positions[next_[s]] & POSITION_BITS)


@njit(nogil=True)
def _before(data, positions, bases, next_, s, t, window, width, chars):
    """Whether order s comes before order t, by their heads' windows, then by number."""
    order = order_of(
        data,
        _position(positions, bases, next_, s),
        _position(positions, bases, next_, t),
        window,
        width,
        chars,
    )
    return order < 0 or (order == 0 and s < t)


@njit(nogil=True)
def _push(data, positions, bases, next_, heap, n, s, window, width, chars):
    """Adds order s to a heap of n orders."""
    k = n
    while k > 0:
        up = (k - 1) >> 1
        if not _before(data, positions, bases, next_, s, heap[up], window, width, chars):
            break
        heap[k] = heap[up]
        k = up
    heap[k] = s


@njit(nogil=True)
def _pop(data, positions, bases, next_, heap, n, window, width, chars):
    """Takes the first order off a heap of n orders."""
    top = heap[0]
    s = heap[n - 1]
    n -= 1
    k = 0
    while 2 * k + 1 < n:
        down = 2 * k + 1
        if down + 1 < n and _before(
            data, positions, bases, next_, heap[down + 1], heap[down], window, width, chars
        ):
            down += 1
        if not _before(data, positions, bases, next_, heap[down], s, window, width, chars):
            break
        heap[k] = heap[down]
        k = down
    heap[k] = s
    return top


@njit(cache=True, nogil=True)
def _start(data, positions, bases, next_, stops, heap, window, width, chars):
    """Makes the heap of all orders that hold something; how many."""
    n = np.int64(0)
    for s in range(len(bases)):
        if next_[s] < stops[s]:
            _push(data, positions, bases, next_, heap, n, s, window, width, chars)
            n += 1
    return n


@njit(nogil=True)
def _run(positions, a, stop):
    """The end of the windows in this order that equal that of positions[a]."""
    z = a + 1
    while z < stop and positions[z] & SAME:
        z += 1
    return z


@njit(cache=True, nogil=True)
def _merge(
    data, positions, bases, next_, stops, heap, group, ends, state, window, width, chars, all_, own,
    out_position, out_first,
):  # fmt: skip
    """Fills out_position, out_first with positions that go; returns how many, 0 at the
    end.

    all_: all positions of a window go, else all but the first and those that overlap it; own:
    positions before it stay in any case.
    """
    n = 0
    while True:
        while state[_AT] < state[_GROUP]:
            s = group[state[_AT]]
            first, second = state[_FIRST], state[_SECOND]
            stop = np.int64(0)
            if not all_:
                stop = first + window
                if chars and second < first + 4 * window:  # else nothing can overlap it
                    stop = window_end(data, first, window, chars, np.int64(len(data)))
            while next_[s] < ends[s]:
                if n == len(out_position):
                    return n
                p = _position(positions, bases, next_, s)
                next_[s] += 1
                if p < own or (not all_ and p < stop):
                    continue
                out_position[n] = p
                out_first[n] = first if p != first else second
                n += 1
            if next_[s] < stops[s]:
                _push(data, positions, bases, next_, heap, state[_HEAP], s, window, width, chars)
                state[_HEAP] += 1
            state[_AT] += 1
        if state[_HEAP] == 0:
            return n
        state[_GROUP] = state[_AT] = 0
        lead = np.int64(-1)
        first = second = np.int64(2**62)
        count = 0
        while state[_HEAP] > 0:
            if lead >= 0 and not same_window(
                data, lead, _position(positions, bases, next_, heap[0]), window, width, chars
            ):
                break
            s = _pop(data, positions, bases, next_, heap, state[_HEAP], window, width, chars)
            state[_HEAP] -= 1
            lead = _position(positions, bases, next_, s)
            ends[s] = _run(positions, next_[s], stops[s])
            for k in range(next_[s], ends[s]):
                p = bases[s] + np.int64(positions[k] & POSITION_BITS)
                if p < first:
                    first, second = p, first
                elif p < second:
                    second = p
            count += ends[s] - next_[s]
            group[state[_GROUP]] = s
            state[_GROUP] += 1
        state[_FIRST], state[_SECOND] = first, second
        if count == 1:
            s = group[0]
            next_[s] = ends[s]


def repeated(
    text: np.ndarray,
    positions: np.ndarray,
    bases: list[int],
    counts: list[int],
    window: int,
    chars: bool,
    all_: bool,
    own: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(position, first: int64[]) of the windows that go, in no useful order; first: the first
    position of the same window, and for that position itself the second one.

    text: uint8[], uint16[] or uint32[], of the regions; positions: uint32[], of each order all or
    what lies between two windows, one behind the other; bases: as Orders has them; counts:
    positions of each order; all_: every position of a window that stands twice goes, else all but
    the first and those that overlap it; own: windows before this position stay.
    """
    k = max(1, len(bases))
    width = text.dtype.itemsize
    data = text.view(np.uint8)
    starts = np.array(bases, np.int64)
    stops = np.cumsum(np.array(counts, np.int64), dtype=np.int64)
    next_ = stops - np.array(counts, np.int64)
    heap, group, ends = (np.zeros(k, np.int64) for _ in range(3))
    state = np.zeros(5, np.int64)
    state[_HEAP] = _start(data, positions, starts, next_, stops, heap, window, width, chars)
    while True:
        position, first = np.empty(FLUSH, np.int64), np.empty(FLUSH, np.int64)
        n = _merge(
            data, positions, starts, next_, stops, heap, group, ends, state, window, width, chars,
            all_, own, position, first,
        )  # fmt: skip
        if n == 0:
            return
        yield position[:n], first[:n]


# Passages are runs of windows that stand behind each other in one region. Windows come in the order
# of their text's suffixes, so they are first put into the order of positions: all of a corpus where
# they are few, else of a range of it.

_ROOM = 1 << 16
# Of the passage at hand: its region (-1: none), start and end; the region of the copy it equals and
# the copy's start and end; where its own region ends.
_REGION, _START, _END, _OTHER, _FROM, _TO, _STOP = range(7)


@dataclass(frozen=True)
class Passages:
    """int64[passages] each. region: its index; start, end: positions in the regions' text; other:
    the index of the region of the copy it equals, other_start, other_end: positions there."""

    region: np.ndarray
    start: np.ndarray
    end: np.ndarray
    other: np.ndarray
    other_start: np.ndarray
    other_end: np.ndarray


@njit(nogil=True)
def _region_of(at, position):
    """The region that holds a position."""
    low, high = 0, len(at)
    while low + 1 < high:
        middle = (low + high) >> 1
        if at[middle] <= position:
            low = middle
        else:
            high = middle
    return low


@njit(nogil=True)
def _close(state, out, n):
    """Notes the passage at hand."""
    for k in range(6):
        out[n, k] = state[k]
    state[_REGION] = -1
    return n + 1


@njit(cache=True, nogil=True)
def _join(data, firsts, base, begin, at, length, window, chars, total, state, out):
    """Passages of firsts[begin:]; (the position to go on from, how many). A passage goes on while
    windows stand side by side and the first positions of each begin within those before it.

    data: uint8[], looked at only where chars.
    """
    n = 0
    for k in range(begin, len(firsts)):
        p = base + k
        if chars and continues(data[p]):
            continue
        if n + 1 >= len(out):
            return k, n
        first = firsts[k]
        if first < 0 or (state[_REGION] >= 0 and p >= state[_STOP]):
            if state[_REGION] >= 0:
                n = _close(state, out, n)
            if first < 0:
                continue
        region = state[_REGION]
        if region < 0 or not chars:
            end = window_end(data, p, window, chars, total)
        else:  # one character further than the window before
            end = state[_END] + 1
            while end < total and continues(data[end]):
                end += 1
        stop = first + end - p  # equal windows are equally long
        if region >= 0 and state[_FROM] <= first < state[_TO]:  # so in one region too
            state[_END] = end
            state[_FROM] = min(state[_FROM], first)
            state[_TO] = max(state[_TO], stop)
            continue
        if region >= 0:
            n = _close(state, out, n)
        else:
            region = _region_of(at, p)
        state[_REGION], state[_START], state[_END] = region, p, end
        state[_OTHER] = _region_of(at, first)
        state[_FROM], state[_TO] = first, stop
        state[_STOP] = at[region] + length[region]
    return len(firsts), n


def passages(
    windows: Iterable[tuple[np.ndarray, np.ndarray]],
    text: np.ndarray,
    regions: Regions,
    window: int,
    chars: bool,
) -> Iterator[Passages]:
    """Passages in order of their positions. windows: as `merge.repeated` gives them; held are 8
    bytes a position."""
    firsts = np.full(len(text), -1, np.int64)
    for position, first in windows:
        firsts[position] = first
    yield from join([(0, firsts)], text, regions, window, chars)


def join(
    pieces: Iterable[tuple[int, np.ndarray]],
    text: np.ndarray,
    regions: Regions,
    window: int,
    chars: bool,
) -> Iterator[Passages]:
    """Passages in order of their positions. pieces: arrays that lie side by side, (first position,
    first: int64[]): for every position its window's first position, or -1; the first piece begins
    with a region and the last one ends with one."""
    data = text if chars else text[:0].view(np.uint8)
    total = len(text)
    state = np.full(7, -1, np.int64)
    out = np.empty((_ROOM, 6), np.int64)
    for base, firsts in pieces:
        begin = 0
        while begin < len(firsts):
            begin, n = _join(
                data, firsts, base, begin, regions.at, regions.length, window, chars, total, state,
                out,
            )  # fmt: skip
            if n:
                yield Passages(*out[:n].T.copy())
    if state[_REGION] >= 0:
        yield Passages(*state[:6].reshape(1, 6).T.copy())


SAMPLES = 32  # windows looked at for each cut


def find_passages(
    run: Run,
    region_text: RegionText,
    orders: Orders,
    all_: bool,
    own: int,
    size: int,
    held_positions: int = HELD,
) -> Iterator[Passages]:
    """Passages in order of their positions. all_, own: as `repeated` has them; size: of tasks;
    held_positions: of an order in memory. A single task is done in this process, without files."""
    text, regions = region_text.text(), region_text.regions()
    cuts = find_cuts(text, orders, region_text, -(-sum(orders.counts) // size))
    ranges = range_starts(regions, size)
    if len(cuts) <= 2 and len(ranges) <= 2:
        positions = orders.part(
            [0] * len(orders.counts), orders.counts, orders.folder / "held", held_positions
        )
        windows = repeated(
            text.values,
            positions,
            orders.bases,
            orders.counts,
            region_text.window,
            region_text.chars,
            all_,
            own,
        )
        yield from passages(windows, text.values, regions, region_text.window, region_text.chars)
        return
    merges = [
        MergeTask(
            part, orders.folder, region_text, size, begins, ends, orders.bases, held_positions,
            all_, own,
        )
        for part, (begins, ends) in enumerate(pairwise(cuts))
    ]  # fmt: skip
    # What an earlier try of the same merge left is whole.
    missing = [task for task in merges if not all(task.file(name).exists() for name in WINDOWS)]
    run_tasks(run, f"{__name__}:merge_windows", missing)
    joins = [
        JoinTask(part, orders.folder, region_text, size, len(merges))
        for part in range(len(ranges) - 1)
    ]
    waiting = [task for task in joins if not task.file(PASSAGES).exists()]
    run_tasks(run, f"{__name__}:join_windows", waiting)
    for task in joins:
        yield Passages(*np.load(task.file(PASSAGES), allow_pickle=False))


def find_cuts(text: Mapped, orders: Orders, region_text: RegionText, parts: int) -> list[list[int]]:
    """Cuts of each order into so many parts or fewer: a list a cut, from the beginnings to the
    ends."""
    cuts = [[0] * len(orders.bases), orders.counts]
    if parts < 2:
        return cuts
    stride = max(1, sum(orders.counts) // (SAMPLES * parts))
    chunk_orders = [
        (base, Mapped(orders.path(chunk), np.dtype(np.uint32)).values)
        for chunk, base in enumerate(orders.bases)
    ]
    sampled = []
    for base, order in chunk_orders:
        positions = base + (order[stride // 2 :: stride] & POSITION_BITS).astype(np.int64)
        sampled += [
            window_of(text.values, position, region_text) for position in positions.tolist()
        ]
    sampled.sort()
    at = sorted({len(sampled) * k // parts for k in range(1, parts)})
    for window in dict.fromkeys(sampled[k] for k in at if sampled):
        cuts.insert(
            -1, [_first(text, order, base, window, region_text) for base, order in chunk_orders]
        )
    return cuts


def _first(
    text: Mapped, order: np.ndarray, base: int, window: bytes, region_text: RegionText
) -> int:
    """The index in a chunk's order of a window, or of the first one behind it."""

    def key(position: Any) -> bytes:
        return window_of(text.values, base + int(position & POSITION_BITS), region_text)

    return bisect_left(order, window, key=key)


def window_of(text: np.ndarray, position: int, region_text: RegionText) -> bytes:
    """The window at a position; such bytes stand in the order that the chunks are sorted in."""
    if not region_text.chars:
        return text[position : position + region_text.window].tobytes()
    nearby = text[position : position + 4 * region_text.window + 1]
    starts = np.flatnonzero((nearby & 0xC0) != 0x80)
    return nearby[
        : starts[region_text.window] if len(starts) > region_text.window else len(nearby)
    ].tobytes()


def range_starts(regions: Regions, size: int) -> np.ndarray:
    """int64[ranges + 1]: where ranges of positions begin, each with a region and about that long,
    and the end of all."""
    total = regions.symbols
    if not total:
        return np.zeros(1, np.int64)
    first = np.searchsorted(regions.at, np.arange(0, total, size))
    return np.append(np.unique(regions.at[first[first < len(regions.at)]]), total)


# A merge's pairs (position, first: int64) in blocks, each by ranges; where each range begins in
# each block: int64[blocks, ranges + 1]. The passages of a range: int64[6, passages].
WINDOWS, PASSAGES = ("windows.i64", "windows.npy"), "passages.npy"


@dataclass(frozen=True)
class RangesTask(FolderTask):
    """A task on a text that is cut into ranges of about so many positions."""

    text: RegionText
    size: int


@dataclass(frozen=True)
class MergeTask(RangesTask):
    """The windows between two cuts are to be merged. begins, ends: in each chunk's order; bases: as
    Orders has them; held: positions in memory; all_, own: as `repeated` has them."""

    begins: list[int]
    ends: list[int]
    bases: list[int]
    held: int
    all_: bool
    own: int


@dataclass(frozen=True)
class JoinTask(RangesTask):
    """The windows that so many merges wrote for a range are to be joined."""

    merges: int


def merge_windows(task: MergeTask) -> None:
    """A task: the windows that go, of those between two cuts."""
    orders = Orders(task.folder, task.bases, [])
    starts = range_starts(task.text.regions(), task.size)
    counts = [end - begin for begin, end in zip(task.begins, task.ends, strict=True)]
    blocks = [np.zeros((0, len(starts)), np.int64)]
    done = 0
    pairs_path, blocks_path = map(task.file, WINDOWS)
    scratch = task.folder / temporary_name(f"held-{task.part}")
    positions = orders.part(task.begins, task.ends, scratch, task.held)
    windows = repeated(
        task.text.text().values, positions, orders.bases, counts, task.text.window,
        task.text.chars, task.all_, task.own,
    )  # fmt: skip
    try:
        with replacing(pairs_path) as aside, aside.open("wb") as file:
            for position, first in windows:
                # Numbers of 16 bits are sorted by counting.
                kind = np.uint16 if len(starts) < 1 << 16 else np.int64
                number = np.searchsorted(starts, position, side="right").astype(kind)
                order = np.argsort(number, kind="stable")
                pairs = np.empty((len(position), 2), np.int64)
                pairs[:, 0], pairs[:, 1] = position[order], first[order]
                pairs.tofile(file)
                cut = np.searchsorted(number[order], np.arange(1, len(starts) + 1))
                blocks.append(done + cut[None, :])
                done += len(position)
        with replacing(blocks_path) as aside, aside.open("wb") as file:
            np.save(file, np.concatenate(blocks))
    finally:
        remove(scratch, inside=scratch.parent)


def join_windows(task: JoinTask) -> None:
    """A task: the passages of a range of positions."""
    text, regions = task.text, task.text.regions()
    begin, end = range_starts(regions, task.size)[task.part : task.part + 2].tolist()
    most = 4 * task.size  # only a region longer than that is put in order piece by piece

    def pieces() -> Iterator[tuple[int, np.ndarray]]:
        for base in range(begin, end, most):
            first_of = np.full(min(most, end - base), -1, np.int64)
            for merge in range(task.merges):
                for pairs in _pairs(task.folder, merge, task.part):
                    offsets = pairs[:, 0] - base
                    if end - begin > most:
                        keep = (offsets >= 0) & (offsets < len(first_of))
                        offsets, pairs = offsets[keep], pairs[keep]
                    first_of[offsets] = pairs[:, 1]
            yield base, first_of

    parts = list(join(pieces(), text.text().values, regions, text.window, text.chars))
    columns = [np.concatenate([vars(p)[name] for p in parts] or [np.empty(0, np.int64)])
               for name in Passages.__dataclass_fields__]  # fmt: skip
    with replacing(task.file(PASSAGES)) as aside, aside.open("wb") as file:
        np.save(file, np.stack(columns))


def _pairs(folder: Path, merge: int, part: int) -> Iterator[np.ndarray]:
    """int64[pairs, 2]: what a merge wrote for a range, block by block."""
    pairs, blocks = (part_file(folder, name, merge) for name in WINDOWS)
    for begin, end in np.load(blocks, allow_pickle=False)[:, part : part + 2].tolist():
        if end > begin:
            yield np.fromfile(pairs, np.int64, 2 * (end - begin), offset=16 * begin).reshape(-1, 2)
