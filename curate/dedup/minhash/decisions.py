"""From components to decisions: which copy stays, whom the others match, how alike they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.database import literal
from curate.dedup.minhash.buckets import set_bits
from curate.dedup.minhash.candidates import BATCH, ORDER, ROWS, Ids, mapped, null_where, release
from curate.dedup.minhash.forest import NONE, members_of_two
from curate.dedup.minhash.stars import PARTNERS, ROOTS, SHARED

SIMILARITY = "similarity.f64"
BINS = 1000  # of the histogram that the summary of similarities is read from

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("n", pa.int64()),
        ("drop", pa.bool_()),
        ("id", pa.string()),
        ("cluster", pa.int64()),
        ("kept_id", pa.string()),
        ("partner_id", pa.string()),
        ("similarity", pa.float64()),
        ("method", pa.string()),
        ("span_start", pa.int64()),
        ("span_end", pa.int64()),
    ]
)


def _clusters(
    db: Any, ids: Ids, root: np.ndarray, member: np.ndarray, scratch: Path
) -> tuple[np.ndarray, int]:
    """(int64[candidates], clusters): the number of the component whose root is k, in order of the
    ids of the roots; in a file that is mapped into memory."""
    rows = scratch / ".part-roots.parquet"
    schema = pa.schema([("k", pa.uint32()), ("id", pa.large_string())])
    with pq.ParquetWriter(rows, schema, compression="lz4") as writer:
        for begin in range(0, len(root), BATCH):
            stop = min(begin + BATCH, len(root))
            k = set_bits(member, begin, stop) + begin
            k = k[root[k] == k]
            writer.write_table(pa.table([pa.array(k, pa.uint32()), ids.of(k)], schema=schema))
            ids.forget()
    path = scratch / ".part-clusters.i64"
    numbers = np.memmap(path, np.int64, "w+", shape=(max(1, len(root)),))
    path.unlink()
    relation = db.sql(f"SELECT k FROM read_parquet({literal(rows)}) ORDER BY id")
    modern = hasattr(relation, "to_arrow_reader")  # else a DuckDB of 2025 or before
    count = 0
    for batch in relation.to_arrow_reader(BATCH) if modern else relation.fetch_arrow_reader(BATCH):
        k = batch.column(0).to_numpy()
        numbers[k] = np.arange(count, count + len(k))
        count += len(k)
        release(numbers)
    rows.unlink()
    return numbers, count


def _similarities(edges: Path, bands: int, rows: int) -> tuple[np.ndarray, Any]:
    """(values by k, what makes similarities of them): of verified pairs the values themselves,
    else shared buckets, whose share of the bands estimates s^rows."""
    if (edges / SIMILARITY).exists():
        return mapped(edges / SIMILARITY, np.float64), lambda found: found
    shared = mapped(edges / SHARED, np.uint16)
    of = (np.arange(bands + 1) / bands) ** (1.0 / rows)
    return shared, lambda found: of[found]


def write_decisions(
    db: Any, path: Path, candidates: Path, edges: Path, banding: tuple[int, int], method: str
) -> tuple[dict[str, int], np.ndarray]:
    """Writes the decisions on all members of components, by (part, n); returns counts, and how many
    of the dropped have a similarity of 0.000, 0.001, ... 1.000.

    The folders are those of the phases `candidates` and `edges`.
    """
    if not (candidates / ROWS).exists():  # no two documents share a band
        pq.write_table(SCHEMA.empty_table(), path)
        return {"clusters": 0, "members": 0, "dropped": 0}, np.zeros(BINS + 1, np.int64)
    root = np.fromfile(edges / ROOTS, np.uint32)
    partner = np.fromfile(edges / PARTNERS, np.uint32)
    values, similarity_of = _similarities(edges, *banding)
    member = members_of_two(root)
    ids = Ids(candidates)
    cluster, count = _clusters(db, ids, root, member, path.parent)
    histogram = np.zeros(BINS + 1, np.int64)
    members = 0
    with (
        pq.ParquetFile(candidates / ROWS) as source,
        (candidates / ORDER).open("rb") as order,
        pq.ParquetWriter(path, SCHEMA) as writer,
    ):
        for batch in source.iter_batches(BATCH, columns=["part", "n", "id"], use_threads=False):
            k = np.fromfile(order, np.uint32, len(batch))
            mine = np.flatnonzero(member[k >> 6] >> (k & 63).astype(np.uint64) & np.uint64(1))
            rows, k = batch.take(pa.array(mine)), k[mine]
            other = partner[k]
            alone = other == NONE
            drop = root[k] != k
            similarity = similarity_of(values[k])
            histogram += np.bincount(
                np.round(similarity[drop] * BINS).astype(np.int64), minlength=BINS + 1
            )
            columns = [
                rows.column(0).cast(pa.int32()),
                rows.column(1).cast(pa.int64()),
                pa.array(drop),
                rows.column(2).cast(pa.string()),
                pa.array(cluster[root[k]]),
                ids.of(root[k]).cast(pa.string()),
                null_where(ids.of(other).cast(pa.string()), alone),
                pa.array(similarity, mask=alone),
                pa.repeat(method, len(k)),
                pa.nulls(len(k), pa.int64()),
                pa.nulls(len(k), pa.int64()),
            ]
            writer.write_table(pa.table(columns, schema=SCHEMA))
            members += len(k)
            release(cluster)
            release(values)
            ids.forget()
    return {"clusters": count, "members": members, "dropped": members - count}, histogram
