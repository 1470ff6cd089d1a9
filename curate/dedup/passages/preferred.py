"""Runs of equal keys, and of each the passage preferred most and the one preferred least."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.corpus.shuffle.partitions import sort_pairs
from curate.dedup import survivors
from curate.disk.atomic import TEMPORARY
from curate.disk.database import database
from kernel_cache import njit

SORT_MEMORY = "512MB"


@njit(cache=True, nogil=True)
def preferred(order, low, high, place, copies, run_of, first, last, total):
    """How many runs of equal keys there are; keys ascend in `order`: uint32[rows].

    low, high: uint64[rows]; place: uint64[rows], the least is preferred; copies: int64[rows] that a
    row stands for. Filled are run_of: uint32[rows], and by run first, last: uint32, its rows of
    the least and of the greatest place, and total: int64, its copies.
    """
    runs = -1
    before = np.uint32(0)
    for i in range(len(order)):
        r = order[i]
        if i == 0 or low[r] != low[before] or high[r] != high[before]:
            runs += 1
            first[runs] = last[runs] = r
            total[runs] = 0
        elif place[r] < place[first[runs]]:
            first[runs] = r
        elif place[r] > place[last[runs]]:
            last[runs] = r
        total[runs] += copies[r]
        run_of[r] = runs
        before = r
    return runs + 1


class Runs:
    """The runs of equal keys in their order: run_of: uint32[rows]; first, last: uint32[runs], rows;
    total: int64[runs]."""

    def __init__(
        self, low: np.ndarray, high: np.ndarray, place: np.ndarray, copies: np.ndarray
    ) -> None:
        rows = len(low)
        self.run_of = np.empty(rows, np.uint32)
        found = np.empty(rows, np.uint32), np.empty(rows, np.uint32), np.empty(rows, np.int64)
        order = in_order(low, high)
        count = preferred(order, low, high, place, copies, self.run_of, *found)
        self.first, self.last, self.total = (array[:count] for array in found)


def in_order(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """uint32[rows]: the rows by (low, high); equal ones as they are."""
    numbers = np.arange(len(low), dtype=np.uint32)
    keys, order = sort_pairs(low.copy(), numbers, 0, lambda dtype: np.empty(len(low), dtype))
    same = keys[1:] == keys[:-1]
    # Sharing one half and not the other is chance, or made to collide.
    if (same & (high[order[1:]] != high[order[:-1]])).any():
        return np.lexsort((high, low)).astype(np.uint32)
    return order


def ranks(documents: pa.Table, policy: str, folder: Path) -> np.ndarray:
    """int64[documents]: the place of each in the order of preference, from the columns that the
    policy names and id; equal ones as they are, and so are all with `first`. folder: to spill."""
    count = len(documents)
    if survivors.preference(policy) == survivors.preference("first") or count < 2:
        return np.arange(count)
    found = np.empty(count, np.int64)
    with database(folder / f"{TEMPORARY}{os.getpid()}-spill-ranks") as db:
        db.execute(f"SET memory_limit = '{SORT_MEMORY}'")
        db.register("documents", documents.append_column("k", pa.array(np.arange(count))))
        order = f"SELECT k FROM documents ORDER BY {survivors.preference(policy)}, k"
        found[db.execute(order).fetchnumpy()["k"]] = np.arange(count)
    return found
