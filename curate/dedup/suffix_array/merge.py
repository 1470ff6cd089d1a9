"""Merging and joining as tasks: from the chunks' orders to passages, of any number of chunks.

The orders are cut at a few windows, each at the same ones, so that what lies between two cuts is a
merge of its own: all places of a window are on one side. A task writes its windows that go, by
ranges of places. Ranges begin with a region, which no passage leaves, so joining each is a task
too. A task holds 4 bytes a window or 8 a place, some 130 or 270 MB.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from curate.atomic import TEMPORARY, replacing
from curate.dedup.shuffle.groups import run_tasks
from curate.dedup.suffix_array.groups import PLACE, repeated
from curate.dedup.suffix_array.ranges import Passages, join, passages
from curate.dedup.suffix_array.regions import Regions
from curate.dedup.suffix_array.sort import Mapped, Orders, RegionText
from curate.disk.inside import remove
from curate.sketches import Run, Task

SIZE = 1 << 25  # windows that are merged, and places that are joined, by a task
SAMPLES = 32  # windows looked at for each cut


def find_passages(
    run: Run, of: RegionText, orders: Orders, all_: bool, own: int, size: int | None = None
) -> Iterator[Passages]:
    """Passages in order of their places. all_, own: as `groups.repeated` has them; size: of tasks,
    where not SIZE. What is one task alone is done here, without files."""
    size = size or SIZE
    text, regions = of.text(), of.regions()
    cuts = find_cuts(text, orders, of, -(-sum(orders.counts) // size))
    ranges = range_starts(regions, size)
    if len(cuts) <= 2 and len(ranges) <= 2:
        held = orders.part([0] * len(orders.counts), orders.counts, orders.folder / "held")
        windows = repeated(
            text.values, held, orders.bases, orders.counts, of.window, of.chars, all_, own
        )
        yield from passages(windows, text.values, regions, of.window, of.chars)
        return
    told = {**of.dump(), "to": str(orders.folder), "size": size}
    merges = [
        {"part": part, "begins": begins, "ends": ends, "bases": orders.bases, **told}
        | {"all": all_, "own": own}
        for part, (begins, ends) in enumerate(pairwise(cuts))
    ]
    # What an earlier try of the same merge left is whole.
    missing = [t for t in merges if not all(p.exists() for p in window_files(orders.folder, t))]
    run_tasks(run, f"{__name__}:merge_windows", missing)
    joins = [{"part": part, "merges": len(merges), **told} for part in range(len(ranges) - 1)]
    missing = [t for t in joins if not passage_file(orders.folder, t).exists()]
    run_tasks(run, f"{__name__}:join_windows", missing)
    for task in joins:
        yield Passages(*np.load(passage_file(orders.folder, task), allow_pickle=False))


def find_cuts(text: Mapped, orders: Orders, of: RegionText, parts: int) -> list[list[int]]:
    """Where each order is cut into so many parts or fewer: a list a cut, from the beginnings to the
    ends."""
    cuts = [[0] * len(orders.bases), orders.counts]
    if parts < 2:
        return cuts
    stride = max(1, sum(orders.counts) // (SAMPLES * parts))
    held = [
        (base, Mapped(orders.path(chunk), np.dtype(np.uint32)).values)
        for chunk, base in enumerate(orders.bases)
    ]
    seen = []
    for base, order in held:
        places = base + (order[stride // 2 :: stride] & PLACE).astype(np.int64)
        seen += [window_of(text.values, place, of) for place in places.tolist()]
    seen.sort()
    at = sorted({len(seen) * k // parts for k in range(1, parts)})
    for window in dict.fromkeys(seen[k] for k in at if seen):
        cuts.insert(-1, [_first(text, order, base, window, of) for base, order in held])
    return cuts


def _first(text: Mapped, order: np.ndarray, base: int, window: bytes, of: RegionText) -> int:
    """Where a chunk's order comes to a window, or to one behind it."""

    def key(place: Any) -> bytes:
        return window_of(text.values, base + int(place & PLACE), of)

    return bisect_left(order, window, key=key)


def window_of(text: np.ndarray, place: int, of: RegionText) -> bytes:
    """The window from a place on; such bytes stand in the order that the chunks are sorted in."""
    if not of.chars:
        return text[place : place + of.window].tobytes()
    some = text[place : place + 4 * of.window + 1]
    starts = np.flatnonzero((some & 0xC0) != 0x80)
    return some[: starts[of.window] if len(starts) > of.window else len(some)].tobytes()


def range_starts(regions: Regions, size: int) -> np.ndarray:
    """int64[ranges + 1]: where ranges of places begin, each with a region and about that long, and
    the end of all."""
    total = regions.symbols
    if not total:
        return np.zeros(1, np.int64)
    first = np.searchsorted(regions.at, np.arange(0, total, size))
    return np.append(np.unique(regions.at[first[first < len(regions.at)]]), total)


def window_files(folder: Path, task: Task) -> list[Path]:
    """A merge's pairs (place, first: int64) in blocks, each by ranges; where each range begins in
    each block: int64[blocks, ranges + 1]."""
    part = task["part"]
    return [folder / f"windows-{part:05d}.i64", folder / f"windows-{part:05d}.npy"]


def passage_file(folder: Path, task: Task) -> Path:
    """The passages of a range: int64[6, passages]."""
    return folder / f"passages-{task['part']:05d}.npy"


def merge_windows_files(task: Task) -> dict[str, list[str]]:
    """What `merge_windows` reads (of the orders a range each) and writes."""
    folder = Path(task["to"])
    orders = Orders(folder, task["bases"], [])
    reads = [str(orders.path(chunk)) for chunk in range(len(orders.bases))]
    written = [str(path) for path in window_files(folder, task)]
    return {"reads": [*RegionText.load(task).reads, *reads], "writes": written}


def merge_windows(task: Task) -> dict[str, Any]:
    """A task: the windows that go, of those between two cuts."""
    of, folder = RegionText.load(task), Path(task["to"])
    begins, ends = task["begins"], task["ends"]
    orders = Orders(folder, task["bases"], [])
    text = of.text().values
    starts = range_starts(of.regions(), task["size"])
    scratch = folder / f"{TEMPORARY}{os.getpid()}-held-{task['part']}"
    held = orders.part(begins, ends, scratch)
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    found = repeated(
        text, held, orders.bases, counts, of.window, of.chars, task["all"], task["own"]
    )
    blocks = [np.zeros((0, len(starts)), np.int64)]
    done = 0
    pairs_path, blocks_path = window_files(folder, task)
    try:
        with replacing(pairs_path) as aside, aside.open("wb") as file:
            for place, first in found:
                # Numbers of 16 bits are sorted by counting.
                few = np.uint16 if len(starts) < 1 << 16 else np.int64
                number = np.searchsorted(starts, place, side="right").astype(few)
                order = np.argsort(number, kind="stable")
                pairs = np.empty((len(place), 2), np.int64)
                pairs[:, 0], pairs[:, 1] = place[order], first[order]
                pairs.tofile(file)
                cut = np.searchsorted(number[order], np.arange(1, len(starts) + 1))
                blocks.append(done + cut[None, :])
                done += len(place)
        with replacing(blocks_path) as aside, aside.open("wb") as file:
            np.save(file, np.concatenate(blocks))
    finally:
        remove(scratch, inside=scratch.parent)
    return {}


def join_windows_files(task: Task) -> dict[str, list[str]]:
    """What `join_windows` reads (of the windows a range each) and writes."""
    folder = Path(task["to"])
    reads = [p for merge in range(task["merges"]) for p in window_files(folder, {"part": merge})]
    written = str(passage_file(folder, task))
    return {"reads": [*RegionText.load(task).reads, *map(str, reads)], "writes": [written]}


def join_windows(task: Task) -> dict[str, Any]:
    """A task: the passages of a range of places."""
    of, folder, part = RegionText.load(task), Path(task["to"]), task["part"]
    regions = of.regions()
    begin, end = range_starts(regions, task["size"])[part : part + 2].tolist()
    most = 4 * task["size"]  # only a region longer than that is put in order piece by piece

    def pieces() -> Iterator[tuple[int, np.ndarray]]:
        for base in range(begin, end, most):
            found = np.full(min(most, end - base), -1, np.int64)
            for merge in range(task["merges"]):
                for pairs in _pairs(folder, merge, part):
                    mine = pairs[:, 0] - base
                    if end - begin > most:
                        keep = (mine >= 0) & (mine < len(found))
                        mine, pairs = mine[keep], pairs[keep]
                    found[mine] = pairs[:, 1]
            yield base, found

    parts = list(join(pieces(), of.text().values, regions, of.window, of.chars))
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
