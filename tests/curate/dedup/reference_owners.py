"""Reference: the duplicate passages to cut, by database queries over all passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curate.corpus.sketches import Sketches
from curate.dedup.passages.kernels import unpacked
from llmcurate.base.disk.database import literal
from llmcurate.base.disk.parquet_writer import one_array

Keep = Literal["one", "none"]


def _candidates(sketches: Sketches) -> None:
    """Makes the table `members` of all passages."""
    db = sketches.connection
    db.execute(
        """CREATE OR REPLACE TABLE members (
        part INTEGER, n BIGINT, high UBIGINT, low UBIGINT, a UINTEGER, z UINTEGER)"""
    )
    for batch in sketches.batches(["keys", "spans"]):
        keys, rows = unpacked(batch["keys"], np.uint64)
        of = np.searchsorted(rows, np.arange(len(keys)), side="right") - 1
        span = unpacked(batch["spans"], np.uint32)[0]
        columns = {
            "part": one_array(batch["part"]).to_numpy(zero_copy_only=False)[of],
            "n": one_array(batch["n"]).to_numpy(zero_copy_only=False)[of],
            "high": keys[:, 0],
            "low": keys[:, 1],
            "a": span[:, 0],
            "z": span[:, 1],
        }
        db.register("found", pa.table(columns))
        db.execute("INSERT INTO members SELECT * FROM found")
        db.unregister("found")


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
    # A position is the document's rank and the byte in it, as one number: 2^31 candidates of 4 GiB.
    db.execute(
        f"""CREATE OR REPLACE TABLE positions AS
        WITH ranked AS (
          SELECT row_number() OVER (ORDER BY {order}) - 1 AS k, part, n
          FROM sketches SEMI JOIN members USING (part, n))
        SELECT m.high, m.low, m.z, (r.k << 32) + m.a AS position, part, n
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
            f"{lost_passages:,} passages occurred in more than one document; no occurrence was kept"
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
          SELECT high, low, min(position) AS position, max(position) AS last, count(*) AS copies
          FROM positions GROUP BY high, low HAVING count(*) > 1)
        SELECT high, low, position, position >> 32 AS keeper, last >> 32 AS last_keeper, copies,
               row_number() OVER (ORDER BY position) - 1 AS cluster
        FROM shared"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE members AS
        SELECT p.position, p.position >> 32 AS k, p.position & 4294967295 AS a, p.z, p.part, p.n,
               o.position = p.position AS first, o.keeper, o.last_keeper, o.cluster
        FROM positions p JOIN owners o USING (high, low)"""
    )
    db.execute("DROP TABLE positions")
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
