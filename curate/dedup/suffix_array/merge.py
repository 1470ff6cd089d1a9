"""Find repeated passages of a text that may exceed memory: sort its suffixes in chunks, and merge.

A window is a piece of the text of fixed length. Overlapping windows that may repeat form a region.
A range is a stretch of the text that consists of whole regions.

Chunks of the text are sorted by libdivsufsort (Mori; through pydivsufsort) with 32-bit positions: a
chunk has fewer than 2^31 bytes, and sorting takes five bytes of memory per byte of text. A chunk is
read one window beyond its end, so windows may cross its end; only complete windows are kept. The
memory limit sets the chunk size, which does not affect the passages. Each chunk is a task.

Each chunk becomes a list of window positions, sorted by the text of the windows. All lists are
divided at the same few windows, called cuts. One merge task takes the positions between two cuts
from all lists, and so has all positions of a window. It writes the windows to remove, sorted by
range. No passage leaves its region, so one join task can join the windows of a range. Merge tasks
hold 4 bytes per window, join tasks 8 per position."""

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
from llmcurate.base.disk.files import allocate, clear_temporary, remove, replacing, temporary_name
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

MOST = 2**31 - 1  # bytes that libdivsufsort can sort with 32-bit positions
SAME = np.uint32(1 << 31)  # no position needs this bit
# Peak bytes of memory per byte of a chunk: the byte, its position (4), and a flag if a window
# starts there.
PEAK = 6
HELD = 1 << 26  # most positions of a merge in memory: 256 MiB
_READ = 1 << 22
_BLOCK = 1024  # windows whose last bytes are read together


def suffix_array(data: np.ndarray) -> np.ndarray:
    """Return int32[len(data)]: the starts of all suffixes of data: uint8[], sorted by bytes."""
    from pydivsufsort import divsufsort

    if len(data) == 0:
        return np.empty(0, np.int32)
    if len(data) > MOST:
        raise ValueError(f"{len(data)} bytes are too many for one suffix array")
    order: np.ndarray = divsufsort(np.require(data, np.uint8, ["C", "W"]))
    return order


@njit(cache=True, nogil=True)
def _mark_starts(data, base, stop, at, length, window, chars, starts):
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
    """Set the bit SAME on each position in `order` (uint32) whose window equals the previous
    window. Windows are scattered in the text, so the last bytes of many windows are read together,
    which is faster. Only neighbours with the same last bytes (few) are compared as a whole."""
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
    """The text of regions in a folder, and the length of its windows."""

    folder: Path
    dtype: str  # the type of a symbol
    window: int  # symbols per window
    chars: bool  # True if windows are of characters

    def text(self) -> Mapped:
        return Mapped(self.folder / TEXT, np.dtype(self.dtype))

    def regions(self) -> Regions:
        return Regions.load(self.folder / REGIONS, mapped=True)


@dataclass(frozen=True)
class Orders:
    """The sorted window positions of each chunk of the text, one file of uint32 per chunk.
    Positions are relative to the chunk's start. The bit SAME of a position is set if the file's
    previous position has an equal window."""

    folder: Path
    bases: list[int]  # the start of each chunk
    counts: list[int]  # the number of windows of each chunk

    def path(self, chunk: int) -> Path:
        return part_file(self.folder, ORDER_FILE, chunk)

    def part(
        self, begins: list[int], ends: list[int], scratch: Path, most: int = HELD
    ) -> np.ndarray:
        """Return uint32[]: the positions from begins[c] to ends[c] of each chunk c, concatenated.
        If there are more than `most`, the array is a mapped file in `scratch`."""
        size = sum(ends) - sum(begins)
        if size <= most:
            out = np.empty(size, np.uint32)
        else:
            scratch.mkdir(exist_ok=True)
            out = np.asarray(np.memmap(scratch / "held.u32", np.uint32, "w+", shape=(size,)))
            allocate(scratch / "held.u32")
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
    """The task to sort the windows that start at positions from `base` to `stop`."""

    text: RegionText
    base: int
    stop: int


def sort(run: Run, region_text: RegionText, total: int, sort_bytes: int) -> Orders:
    """Sort all chunks of a text of `total` symbols, each in `sort_bytes` of memory. Chunks that a
    killed run has sorted are used again if its chunks had the same size."""
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
    """Run a task: sort the windows of a chunk. The task takes PEAK bytes per byte of the chunk."""
    text, regions = task.text.text(), task.text.regions()
    order = _sorted(text, regions, task.base, task.stop, task.text)
    with replacing(task.file(ORDER_FILE)) as aside:
        order.tofile(aside)


def _reach(region_text: RegionText) -> int:
    return 4 * region_text.window + 4 if region_text.chars else region_text.window


def _sorted(
    text: Mapped, regions: Regions, base: int, stop: int, region_text: RegionText
) -> np.ndarray:
    part = text.part(base, stop + _reach(region_text))
    part.flags.writeable = False  # like a mapped text, so kernels are not compiled for another type
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


# A heap holds the head (next position) of each chunk's order. If the heads of several orders have
# the least window, all positions of this window are at the beginnings of these orders.

POSITION_BITS = ~SAME
FLUSH = 1 << 20  # positions per batch
# The state of a merge between two calls: orders in the heap, orders in the current group, the order
# being written, and the group's first and second position.
_HEAP, _GROUP, _AT, _FIRST, _SECOND = range(5)


@njit(nogil=True, inline="always")
def _position(positions, bases, next_, s):
    return bases[s] + np.int64(positions[next_[s]] & POSITION_BITS)


@njit(nogil=True)
def _before(data, positions, bases, next_, s, t, window, width, chars):
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
    n = np.int64(0)
    for s in range(len(bases)):
        if next_[s] < stops[s]:
            _push(data, positions, bases, next_, heap, n, s, window, width, chars)
            n += 1
    return n


@njit(nogil=True)
def _run(positions, a, stop):
    z = a + 1
    while z < stop and positions[z] & SAME:
        z += 1
    return z


@njit(cache=True, nogil=True)
def _merge(
    data, positions, bases, next_, stops, heap, group, ends, state, window, width, chars,
    remove_all, own_begin, out_position, out_first,
):  # fmt: skip
    n = 0
    while True:
        while state[_AT] < state[_GROUP]:
            s = group[state[_AT]]
            first, second = state[_FIRST], state[_SECOND]
            stop = np.int64(0)
            if not remove_all:
                stop = first + window
                if chars and second < first + 4 * window:  # else no window overlaps the first
                    stop = window_end(data, first, window, chars, np.int64(len(data)))
            while next_[s] < ends[s]:
                if n == len(out_position):
                    return n
                p = _position(positions, bases, next_, s)
                next_[s] += 1
                if p < own_begin or (not remove_all and p < stop):
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
    remove_all: bool,
    own_begin: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Find the windows to remove. Yield (positions, firsts), int64 arrays in no particular order:
    where each such window is, and the first position of an equal window, or the second position if
    the window itself is the first.

    `positions` (uint32) are sorted positions from each chunk, concatenated; `counts` is their
    number per chunk, and `bases` is each chunk's start in the text. If `remove_all`, every position
    of a repeated window is removed. If not, the first position is kept, and so are those that
    overlap the first. Windows before `own_begin`, in documents of earlier runs, are always kept."""
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
            remove_all, own_begin, position, first,
        )  # fmt: skip
        if n == 0:
            return
        yield position[:n], first[:n]


# Passages are runs of consecutive windows in one region. Windows come in suffix order, so they are
# first sorted by position: all at once if they are few, else one range at a time.

_ROOM = 1 << 16
# The current passage: its region (-1: no passage), start and end; the region, start and end of its
# match; the end of its region.
_REGION, _START, _END, _OTHER, _FROM, _TO, _STOP = range(7)


@dataclass(frozen=True)
class Passages:
    """Repeated passages, each with a passage that it matches (int64[passages] each). Positions are
    in the text of all regions, concatenated."""

    region: np.ndarray  # the region's index
    start: np.ndarray
    end: np.ndarray
    other: np.ndarray  # the region of the match
    other_start: np.ndarray  # where the match starts
    other_end: np.ndarray  # where the match ends


@njit(nogil=True)
def _region_of(at, position):
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
    for k in range(6):
        out[n, k] = state[k]
    state[_REGION] = -1
    return n + 1


@njit(cache=True, nogil=True)
def _join(data, firsts, base, begin, at, length, window, chars, total, state, out):
    """Join windows into passages, beginning with window number `begin`. Fill `out`, and return the
    number of the next window and the number of passages. Window k starts at position base + k.
    firsts[k] is where an equal window starts (its match), or -1 if window k is kept. A passage goes
    on while the next window is not kept and has a match that starts within the passage's earlier
    matches. `state` is the unfinished passage. `at` and `length` are the starts and lengths of
    regions. `data` (uint8, `total` bytes) is read only if `chars` (windows are counted in
    characters)."""
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
        else:  # one character after the end of the previous window
            end = state[_END] + 1
            while end < total and continues(data[end]):
                end += 1
        stop = first + end - p  # equal windows are equally long
        if region >= 0 and state[_FROM] <= first < state[_TO]:  # and in the same region
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
    """Yield repeated passages in order of position, joined from the pairs that `repeated` yields.
    This takes 8 bytes of memory per position in the text."""
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
    """Join windows into passages, and yield these in order of position. `pieces` yields (position,
    array) for adjacent stretches of text. For each window, the array has the position of an equal
    window, or -1 if the window is to be kept. The first stretch must begin where a region begins,
    and the last one must end where a region ends."""
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


SAMPLES = 32  # windows sampled per cut


def find_passages(
    run: Run,
    region_text: RegionText,
    orders: Orders,
    remove_all: bool,
    own_begin: int,
    size: int,
    held_positions: int = HELD,
) -> Iterator[Passages]:
    """Yield repeated passages in order of position. If one task is enough, it runs in this process
    and writes no files. If not, tasks first compare about `size` windows each, then tasks join
    repeated windows into passages, each in about `size` positions of the text. At most
    `held_positions` sorted positions are in memory. `remove_all` and `own_begin` are as in
    `repeated`."""
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
            remove_all,
            own_begin,
        )
        yield from passages(windows, text.values, regions, region_text.window, region_text.chars)
        return
    merges = [
        MergeTask(
            part, orders.folder, region_text, size, begins, ends, orders.bases, held_positions,
            remove_all, own_begin,
        )
        for part, (begins, ends) in enumerate(pairwise(cuts))
    ]  # fmt: skip
    # Files that a killed run left here are complete.
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
    """Divide the sorted window positions of all chunks into up to `parts` parts; equal windows
    share a part. Return for each cut (the start of a part, or the end of the last part) its index
    in the sorted positions of each chunk."""
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
            -1,
            [
                _bisect_window(text, order, base, window, region_text)
                for base, order in chunk_orders
            ],
        )
    return cuts


def _bisect_window(
    text: Mapped, order: np.ndarray, base: int, window: bytes, region_text: RegionText
) -> int:
    def key(position: Any) -> bytes:
        return window_of(text.values, base + int(position & POSITION_BITS), region_text)

    return bisect_left(order, window, key=key)


def window_of(text: np.ndarray, position: int, region_text: RegionText) -> bytes:
    """Return the bytes of the window at a position. Windows are sorted by these bytes."""
    if not region_text.chars:
        return text[position : position + region_text.window].tobytes()
    nearby = text[position : position + 4 * region_text.window + 1]
    starts = np.flatnonzero((nearby & 0xC0) != 0x80)
    return nearby[
        : starts[region_text.window] if len(starts) > region_text.window else len(nearby)
    ].tobytes()


def range_starts(regions: Regions, size: int) -> np.ndarray:
    """Return int64[ranges + 1]: the starts of ranges of about `size` positions, and the end of the
    last range. Each range begins where a region begins."""
    total = regions.symbols
    if not total:
        return np.zeros(1, np.int64)
    first = np.searchsorted(regions.at, np.arange(0, total, size))
    return np.append(np.unique(regions.at[first[first < len(regions.at)]]), total)


# A merge writes pairs (position, first: int64) in blocks, each sorted by range, and where each
# range begins in each block: int64[blocks, ranges + 1]. A join writes the passages of a range:
# int64[6, passages].
WINDOWS, PASSAGES = ("windows.i64", "windows.npy"), "passages.npy"


@dataclass(frozen=True)
class RangesTask(FolderTask):
    """A task on a text that is divided into ranges of about `size` positions."""

    text: RegionText
    size: int


@dataclass(frozen=True)
class MergeTask(RangesTask):
    """A task that finds windows to remove in one part of the sorted windows (see `find_cuts`)."""

    begins: list[int]  # the first cut's index in each chunk
    ends: list[int]  # the second cut's index in each chunk
    bases: list[int]  # the start of each chunk
    held: int  # at most this many positions are in memory
    remove_all: bool
    own_begin: int


@dataclass(frozen=True)
class JoinTask(RangesTask):
    """A task on one range of the text: join windows that are to be removed into passages."""

    merges: int  # number of merge tasks, which found these windows


def merge_windows(task: MergeTask) -> None:
    """Run a task: find the windows to remove between two cuts, and write their positions."""
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
        task.text.chars, task.remove_all, task.own_begin,
    )  # fmt: skip
    try:
        with replacing(pairs_path) as aside, aside.open("wb") as file:
            for position, first in windows:
                # Sorting 16-bit numbers is fast, because NumPy sorts them by counting.
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
    """Run a task: write the passages of a range of positions."""
    text, regions = task.text, task.text.regions()
    begin, end = range_starts(regions, task.size)[task.part : task.part + 2].tolist()
    most = 4 * task.size  # only a region longer than this is processed in pieces

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
    pairs, blocks = (part_file(folder, name, merge) for name in WINDOWS)
    for begin, end in np.load(blocks, allow_pickle=False)[:, part : part + 2].tolist():
        if end > begin:
            yield np.fromfile(pairs, np.int64, 2 * (end - begin), offset=16 * begin).reshape(-1, 2)
