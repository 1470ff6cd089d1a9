"""Merging and joining as tasks: from the chunks' orders to passages, of any number of chunks.

The orders are cut at a few windows, each at the same ones, so that what lies between two cuts is a
merge of its own: all positions of a window are on one side. A task writes its windows that go, by
ranges of positions. Ranges begin with a region, which no passage leaves, so joining each is a task
too. A task holds 4 bytes a window or 8 a position, some 130 or 270 MB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.tasks import run_tasks
from curate.corpus.sketches import Run, Task
from curate.dedup.suffix_array.passages import Passages, join, passages
from curate.dedup.suffix_array.sort import HELD, SAME, Mapped, Orders, RegionText
from curate.dedup.suffix_array.windows import Regions, order_of, same_window, window_end
from llmcurate.base.disk.files import replacing, temporary_name
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.kernels import njit

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
    settings = {
        **region_text.dump(),
        "to": str(orders.folder),
        "size": size,
        "held": held_positions,
    }
    merges = [
        {"part": part, "begins": begins, "ends": ends, "bases": orders.bases, **settings}
        | {"all": all_, "own": own}
        for part, (begins, ends) in enumerate(pairwise(cuts))
    ]
    # What an earlier try of the same merge left is whole.
    missing = [t for t in merges if not all(p.exists() for p in window_files(orders.folder, t))]
    run_tasks(run, f"{__name__}:merge_windows", missing)
    joins = [{"part": part, "merges": len(merges), **settings} for part in range(len(ranges) - 1)]
    missing = [t for t in joins if not passage_file(orders.folder, t).exists()]
    run_tasks(run, f"{__name__}:join_windows", missing)
    for task in joins:
        yield Passages(*np.load(passage_file(orders.folder, task), allow_pickle=False))


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


def window_files(folder: Path, task: Task) -> list[Path]:
    """A merge's pairs (position, first: int64) in blocks, each by ranges; where each range begins
    in each block: int64[blocks, ranges + 1]."""
    part = task["part"]
    return [folder / f"windows-{part:05d}.i64", folder / f"windows-{part:05d}.npy"]


def passage_file(folder: Path, task: Task) -> Path:
    """The passages of a range: int64[6, passages]."""
    return folder / f"passages-{task['part']:05d}.npy"


def merge_windows(task: Task) -> dict[str, Any]:
    """A task: the windows that go, of those between two cuts."""
    region_text, folder = RegionText.load(task), Path(task["to"])
    begins, ends = task["begins"], task["ends"]
    orders = Orders(folder, task["bases"], [])
    text = region_text.text().values
    starts = range_starts(region_text.regions(), task["size"])
    scratch = folder / temporary_name(f"held-{task['part']}")
    positions = orders.part(begins, ends, scratch, task["held"])
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    windows = repeated(
        text,
        positions,
        orders.bases,
        counts,
        region_text.window,
        region_text.chars,
        task["all"],
        task["own"],
    )
    blocks = [np.zeros((0, len(starts)), np.int64)]
    done = 0
    pairs_path, blocks_path = window_files(folder, task)
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
    return {}


def join_windows(task: Task) -> dict[str, Any]:
    """A task: the passages of a range of positions."""
    region_text, folder, part = RegionText.load(task), Path(task["to"]), task["part"]
    regions = region_text.regions()
    begin, end = range_starts(regions, task["size"])[part : part + 2].tolist()
    most = 4 * task["size"]  # only a region longer than that is put in order piece by piece

    def pieces() -> Iterator[tuple[int, np.ndarray]]:
        for base in range(begin, end, most):
            first_of = np.full(min(most, end - base), -1, np.int64)
            for merge in range(task["merges"]):
                for pairs in _pairs(folder, merge, part):
                    offsets = pairs[:, 0] - base
                    if end - begin > most:
                        keep = (offsets >= 0) & (offsets < len(first_of))
                        offsets, pairs = offsets[keep], pairs[keep]
                    first_of[offsets] = pairs[:, 1]
            yield base, first_of

    parts = list(
        join(pieces(), region_text.text().values, regions, region_text.window, region_text.chars)
    )
    columns = [np.concatenate([vars(p)[name] for p in parts] or [np.empty(0, np.int64)])
               for name in Passages.__dataclass_fields__]  # fmt: skip
    with replacing(passage_file(folder, task)) as aside, aside.open("wb") as file:
        np.save(file, np.stack(columns))
    return {}


def _pairs(folder: Path, merge: int, part: int) -> Iterator[np.ndarray]:
    """int64[pairs, 2]: what a merge wrote for a range, block by block."""
    pairs, blocks = window_files(folder, {"part": merge})
    for begin, end in np.load(blocks, allow_pickle=False)[:, part : part + 2].tolist():
        if end > begin:
            yield np.fromfile(pairs, np.int64, 2 * (end - begin), offset=16 * begin).reshape(-1, 2)
