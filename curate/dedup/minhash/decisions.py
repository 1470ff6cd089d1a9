"""From components to decisions: which copy stays, whom the others match, how alike they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.decisions import COLUMNS
from curate.corpus.shuffle.arrays import load_array, map_array, new_array, unmap
from curate.corpus.shuffle.candidates import set_bits
from curate.dedup.minhash.candidates import (
    BATCH,
    ORDER,
    Ids,
    all_rows,
    arrow_batches,
    null_where,
)
from curate.dedup.minhash.forest import NONE, members_of_two
from curate.dedup.minhash.stars import PARTNERS, ROOTS, SHARED
from curate.disk.database import literal

SIMILARITY = "similarity.f64"
BINS = 1000  # of the histogram that the summary of similarities is read from


def _number_clusters(
    db: Any, ids: Ids, root: np.ndarray, member: np.ndarray, partner: np.ndarray, scratch: Path
) -> int:
    """Puts into partner[r] of every root r of two or more, which has no partner, the number of its
    component in order of the ids of the roots; returns how many there are."""
    rows = scratch / ".part-roots.parquet"
    schema = pa.schema([("k", pa.uint32()), ("id", pa.large_string())])
    with pq.ParquetWriter(rows, schema, compression="lz4") as writer:
        for begin in range(0, len(root), BATCH):
            stop = min(begin + BATCH, len(root))
            k = set_bits(member, begin, stop) + begin
            k = k[root[k] == k]
            writer.write_table(pa.table([pa.array(k, pa.uint32()), ids.of(k)], schema=schema))
            ids.forget()
    count = 0
    for batch in arrow_batches(db.sql(f"SELECT k FROM read_parquet({literal(rows)}) ORDER BY id")):
        k = batch.column(0).to_numpy()
        partner[k] = np.arange(count, count + len(k), dtype=np.uint32)
        count += len(k)
    rows.unlink()
    return count


def _similarities(edges: Path, bands: int, rows: int) -> tuple[np.ndarray, Any]:
    """(values by k, what makes similarities of them): of verified pairs the values themselves,
    else shared buckets, whose share of the bands estimates s^rows."""
    if (edges / SIMILARITY).exists():
        return map_array(edges / SIMILARITY, np.float64), lambda found: found
    shared = load_array(edges / SHARED, np.uint16)
    of = (np.arange(bands + 1) / bands) ** (1.0 / rows)
    return shared, lambda found: of[found]


def write_decisions(
    db: Any,
    path: Path,
    candidates: Path,
    pieces: int,
    edges: Path,
    banding: tuple[int, int],
    method: str,
) -> tuple[dict[str, int], np.ndarray]:
    """Writes the decisions on all members of components, by (part, n); returns counts, and how many
    of the dropped have a similarity of 0.000, 0.001, ... 1.000.

    The folders are those of the phases `candidates`, in so many pieces, and `edges`.
    """
    root = load_array(edges / ROOTS, np.uint32)
    partner = new_array(len(root), np.uint32, path.parent)
    partner[:] = load_array(edges / PARTNERS, np.uint32)
    values, similarity_of = _similarities(edges, *banding)
    member = members_of_two(root)
    ids = Ids(candidates)
    count = _number_clusters(db, ids, root, member, partner, path.parent)
    histogram = np.zeros(BINS + 1, np.int64)
    members = 0
    with (
        (candidates / ORDER).open("rb") as order,
        pq.ParquetWriter(path, COLUMNS) as writer,
    ):
        for batch in all_rows(candidates, pieces):
            k = np.fromfile(order, np.uint32, len(batch))
            mine = np.flatnonzero(member[k >> 6] >> (k & 63).astype(np.uint64) & np.uint64(1))
            rows, k = batch.take(pa.array(mine)), k[mine]
            kept = root[k]
            drop = kept != k
            other = np.where(drop, partner[k], NONE)
            similarity = similarity_of(values[k])
            histogram += np.bincount(
                np.round(similarity[drop] * BINS).astype(np.int64), minlength=BINS + 1
            )
            columns = [
                rows.column(0).cast(pa.int32()),
                rows.column(1).cast(pa.int64()),
                pa.array(drop),
                rows.column(2).cast(pa.string()),
                pa.array(partner[kept], pa.int64()),
                ids.of(kept).cast(pa.string()),
                null_where(ids.of(other).cast(pa.string()), ~drop),
                pa.array(similarity, mask=~drop),
                pa.repeat(method, len(k)),
                pa.nulls(len(k), pa.int64()),
                pa.nulls(len(k), pa.int64()),
            ]
            writer.write_table(pa.table(columns, schema=COLUMNS))
            members += len(k)
            unmap(values)
            ids.forget()
    return {"clusters": count, "members": members, "dropped": members - count}, histogram
