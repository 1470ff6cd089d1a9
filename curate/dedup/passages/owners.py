"""Which copies of each passage go: from the sketches of a corpus to decisions.

Only hashes and positions are looked at. passage_filter.py lets go of passages that stand once;
what it leaves is compared in DuckDB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curate.database import literal
from curate.dedup.passages.filter import Filter
from curate.sketches import Sketches
from curate.text.buffers import one_array

Keep = Literal["one", "none"]
KEY_BYTES, SPAN_BYTES = 16, 8
_WAITING = 1 << 20  # rows that go into the database at once


def packed(values: np.ndarray, rows: np.ndarray) -> pa.LargeBinaryArray:
    """values: [passages, 2] as one value a document; rows: int64[documents + 1]."""
    data = np.ascontiguousarray(values)
    width = data.dtype.itemsize * 2
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows * width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(rows) - 1, buffers)


def unpacked(column: pa.LargeBinaryArray, dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """What was packed: (values: dtype[passages, 2], rows: int64[documents + 1])."""
    width = np.dtype(dtype).itemsize * 2
    if len(column) == 0:
        return np.empty((0, 2), dtype), np.zeros(1, np.int64)
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, np.int64, len(column) + 1, column.offset * 8)
    first, stop = int(at[0]), int(at[-1])
    if first == stop:
        return np.empty((0, 2), dtype), np.zeros(len(column) + 1, np.int64)
    count = (stop - first) // (width // 2)
    values = np.frombuffer(data, dtype, count, first).reshape(-1, 2)
    return values, (at - first) // width


def _candidates(sketches: Sketches) -> None:
    """Makes the table `members` of the passages that may stand more than once."""
    db = sketches.connection
    db.execute(
        """CREATE OR REPLACE TABLE members (
        part INTEGER, n BIGINT, high UBIGINT, low UBIGINT, a UINTEGER, z UINTEGER)"""
    )
    ((count,),) = db.execute("SELECT coalesce(sum(passages), 0)::BIGINT FROM sketches").fetchall()
    seen = Filter.of(count)
    for batch in sketches.batches(["keys"]):
        seen.add(unpacked(batch["keys"], np.uint64)[0])
    waiting: list[pa.Table] = []
    for batch in sketches.batches(["keys", "spans"]):
        keys, rows = unpacked(batch["keys"], np.uint64)
        found = seen.shared(keys)
        if len(found) == 0:
            continue
        of = np.searchsorted(rows, found, side="right") - 1
        span = unpacked(batch["spans"], np.uint32)[0][found]
        columns = {
            "part": one_array(batch["part"]).to_numpy(zero_copy_only=False)[of],
            "n": one_array(batch["n"]).to_numpy(zero_copy_only=False)[of],
            "high": keys[found, 0],
            "low": keys[found, 1],
            "a": span[:, 0],
            "z": span[:, 1],
        }
        waiting.append(pa.table(columns))
        if sum(t.num_rows for t in waiting) >= _WAITING:
            _insert(db, waiting)
    _insert(db, waiting)


def _insert(db: Any, waiting: list[pa.Table]) -> None:
    if waiting:
        db.register("found", pa.concat_tables(waiting))
        db.execute("INSERT INTO members SELECT * FROM found")
        db.unregister("found")
        waiting.clear()


def decide(sketches: Sketches, order: str, method: str, keep: Keep) -> dict[str, Any]:
    """Writes the decisions on every passage that stands more than once; returns counts.

    sketches.keys, spans: what `packed` made of a document's passages; passages: how many they are;
    order: ORDER BY terms by which documents are preferred. keep: `one`, of each passage the first
    one in the document preferred most stays; `none`, of a passage that stands in several documents
    none does, and of others the first one. Besides the columns of the contract: `local`, whether
    all copies are in one document, or the copy that stays is in the same one.
    """
    db = sketches.connection
    _candidates(sketches)
    # A place is the document's rank and the byte in it, as one number: 2^31 candidates of 4 GiB.
    db.execute(
        f"""CREATE OR REPLACE TABLE places AS
        WITH ranked AS (
          SELECT row_number() OVER (ORDER BY {order}) - 1 AS k, part, n
          FROM sketches SEMI JOIN members USING (part, n))
        SELECT m.high, m.low, m.z, (r.k << 32) + m.a AS place, part, n
        FROM members m JOIN ranked r USING (part, n)"""
    )
    db.execute("DROP TABLE members")
    _own(db)
    _write(db, sketches.decisions, method, keep)
    ((clusters, members, dropped),) = db.execute(
        f"""SELECT count(*), coalesce(sum(copies), 0)::BIGINT,
        coalesce(sum(copies - CASE WHEN {_LOST[keep]} THEN 0 ELSE 1 END), 0)::BIGINT FROM owners"""
    ).fetchall()
    counts: dict[str, Any] = {"clusters": clusters, "members": members, "dropped": dropped}
    if keep == "none":
        lost = f"SELECT count(*) FROM owners WHERE {_LOST[keep]}"
        ((lost_passages,),) = db.execute(lost).fetchall()
        counts["notes"] = [
            f"{lost_passages:,} passages stood in more than one document; no copy of them was kept"
            " (keep: none)."
        ]
    return counts


# Whether no copy of a passage stays.
_LOST = {"one": "false", "none": "keeper <> last_keeper"}


def _own(db: Any) -> None:
    """Makes `owners`, one row a passage that stands more than once, and `documents`, their ids."""
    db.execute(
        """CREATE OR REPLACE TABLE owners AS
        WITH shared AS (
          SELECT high, low, min(place) AS place, max(place) AS last, count(*) AS copies
          FROM places GROUP BY high, low HAVING count(*) > 1)
        SELECT high, low, place, place >> 32 AS keeper, last >> 32 AS last_keeper, copies,
               row_number() OVER (ORDER BY place) - 1 AS cluster
        FROM shared"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE members AS
        SELECT p.place, p.place >> 32 AS k, p.place & 4294967295 AS a, p.z, p.part, p.n,
               o.place = p.place AS first, o.keeper, o.last_keeper, o.cluster
        FROM places p JOIN owners o USING (high, low)"""
    )
    db.execute("DROP TABLE places")
    db.execute(
        """CREATE OR REPLACE TABLE documents AS
        SELECT k, id FROM sketches JOIN (SELECT DISTINCT k, part, n FROM members) USING (part, n)"""
    )


def _write(db: Any, path: Path, method: str, keep: Keep) -> None:
    lost = _LOST[keep]
    # The partner of a copy is the one preferred most; of that one, where it goes too, the last.
    db.execute(
        f"""COPY (
        WITH decided AS (
          SELECT *, {lost} AS lost, {lost} OR NOT first AS gone,
                 CASE WHEN k = keeper AND {lost} THEN last_keeper ELSE keeper END AS other
          FROM members)
        SELECT part, n, gone AS drop, c.id, cluster::BIGINT AS cluster,
               CASE WHEN NOT lost THEN o.id END AS kept_id,
               CASE WHEN gone THEN o.id END AS partner_id,
               CASE WHEN gone THEN 1.0::DOUBLE END AS similarity,
               '{method}' AS method, a::BIGINT AS span_start, z::BIGINT AS span_end,
               k = keeper AND NOT lost AS local
        FROM decided JOIN documents c USING (k) JOIN documents o ON o.k = other
        ORDER BY part, n, a) TO {literal(path)} (FORMAT parquet)"""
    )
