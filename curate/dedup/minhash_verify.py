"""Exact Jaccard within buckets: which members of a bucket are matched.

Sets of shingles of the candidates lie in one file that is mapped into memory, so what is compared
is limited by disk. Buckets come from DuckDB in order of their keys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from curate.dedup.minhash_clusters import batches
from curate.text.buffers import as_large_string

# A member is compared with so many centres and so many others of its bucket at most, the most
# preferred first: buckets of a hundred thousand unlike pages must not take days.
MOST = 1000
TEXTS = 1000  # documents whose shingles are made at once


@njit(nogil=True)
def jaccard(x: np.ndarray, y: np.ndarray, least: float = 0.0) -> float:
    """Jaccard similarity of two sorted arrays of distinct values; -1 where it is below `least`."""
    if len(x) == 0 or len(y) == 0:
        return 0.0 if least <= 0.0 else -1.0
    # With c common values similarity is c / (len(x) + len(y) - c).
    needed = least * (len(x) + len(y)) / (1.0 + least) - 1e-6
    spare = min(len(x), len(y)) - needed  # values without a counterpart that may still turn up
    i = j = common = 0
    while i < len(x) and j < len(y):
        if x[i] == y[j]:
            common += 1
            i += 1
            j += 1
        elif x[i] < y[j]:
            i += 1
        else:
            j += 1
        if max(i, j) - common > max(len(x), len(y)) - needed or min(i, j) - common > spare:
            return -1.0
    similar = common / (len(x) + len(y) - common)
    return similar if similar >= least else -1.0


@njit(nogil=True)
def _find(parent, x):
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


@njit(cache=True, nogil=True)
def match_buckets(starts, members, begin, length, values, least, first, most, parent):
    """(k, other, similarity) of verified pairs, other < k.

    starts: int64[buckets + 1] into members: int64, ascending within a bucket; the set of document d
    is values[begin[d]:begin[d] + length[d]]; parent: int64[documents], the union-find forest so
    far, changed in place.

    Each member is compared with the centres of its bucket, then with the others before it, except
    those it is connected with already; a member that nothing matches becomes a centre. `first`: a
    member is compared with those before it until one matches, whatever is connected.
    """
    left = np.empty(len(members), np.int64)
    right = np.empty(len(members), np.int64)
    similar = np.empty(len(members), np.float64)
    count = 0
    for g in range(len(starts) - 1):
        size = starts[g + 1] - starts[g]
        kinds = (np.empty(size, np.int64), np.empty(size, np.int64))  # centres, others
        filled = np.zeros(2, np.int64)
        for m in range(starts[g], starts[g + 1]):
            d = members[m]
            mine = values[begin[d] : begin[d] + length[d]]
            found = first and parent[d] != d
            for side in range(2):
                for c in range(min(filled[side], most)):
                    if first and found:
                        break
                    e = kinds[side][c]
                    if not first and _find(parent, d) == _find(parent, e):
                        found = True
                        continue
                    s = jaccard(mine, values[begin[e] : begin[e] + length[e]], least)
                    if s < 0.0:
                        continue
                    left[count], right[count], similar[count] = d, e, s
                    count += 1
                    found = True
                    if first:
                        parent[d] = e
                    else:
                        x, y = _find(parent, d), _find(parent, e)
                        parent[max(x, y)] = min(x, y)
            side = 1 if found else 0
            kinds[side][filled[side]] = d
            filled[side] += 1
    return left[:count].copy(), right[:count].copy(), similar[:count].copy()


def write_shingles(
    db: Any, path: Path, count: int, shingles: Callable[[pa.LargeStringArray], Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Writes the candidates' sets of shingles; (begin, length): int64[count], in uint64 values."""
    begin, length = np.zeros(count, np.int64), np.zeros(count, np.int64)
    total = 0
    query = "SELECT k, text FROM candidates JOIN sketches USING (part, n)"
    with path.open("wb") as file:
        for batch in batches(db, query, TEXTS):
            k = batch.column(0).to_numpy()
            offsets, values = shingles(as_large_string(batch.column(1)))
            begin[k], length[k] = offsets[:-1] + total, np.diff(offsets)
            file.write(values.data)
            total += len(values)
    return begin, length


def verified_edges(
    db: Any,
    count: int,
    least: float,
    first: bool,
    shingles: Callable[[pa.LargeStringArray], Any],
) -> None:
    """Makes the table edges (k, other, weight) of pairs with exact similarity of `least` or more;
    weight: that similarity."""
    folder = Path(db.execute("SELECT current_setting('temp_directory')").fetchone()[0])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shingles.u64"
    db.execute("CREATE OR REPLACE TABLE edges (k BIGINT, other BIGINT, weight DOUBLE)")
    try:
        begin, length = write_shingles(db, path, count, shingles)
        if length.sum() == 0:
            return
        values = np.memmap(path, np.uint64, "r").view(np.ndarray)
        parent = np.arange(count)
        waiting_keys, waiting = np.empty(0, np.uint64), np.empty(0, np.int64)
        for batch in batches(db, "SELECT key, k FROM buckets ORDER BY key, k"):
            keys = np.concatenate([waiting_keys, batch.column(0).to_numpy()])
            members = np.concatenate([waiting, batch.column(1).to_numpy()])
            # The last bucket may go on in the next batch.
            cut = int(np.searchsorted(keys, keys[-1]))
            waiting_keys, waiting = keys[cut:], members[cut:]
            _add(db, keys[:cut], members[:cut], begin, length, values, least, first, parent)
        _add(db, waiting_keys, waiting, begin, length, values, least, first, parent)
    finally:
        path.unlink(missing_ok=True)


def _add(
    db: Any,
    keys: np.ndarray,
    members: np.ndarray,
    begin: np.ndarray,
    length: np.ndarray,
    values: np.ndarray,
    least: float,
    first: bool,
    parent: np.ndarray,
) -> None:
    """Adds the edges within whole buckets."""
    if len(keys) == 0:
        return
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    starts = np.concatenate([[0], changes, [len(keys)]])
    k, other, weight = match_buckets(
        starts, members, begin, length, values, least, first, MOST, parent
    )
    db.register("found_edges", pa.table({"k": k, "other": other, "weight": weight}))
    db.execute("INSERT INTO edges SELECT k, other, weight FROM found_edges")
    db.unregister("found_edges")
