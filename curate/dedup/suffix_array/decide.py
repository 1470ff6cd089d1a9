"""From passages to decisions: clusters of copies, spans in bytes, the table, in DuckDB.

A cluster is a passage of one document together with its copies: copies of passages that overlap
belong to one. A cut that equals places of several documents is one row for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.database import literal
from curate.dedup.suffix_array.ranges import Passages
from curate.dedup.suffix_array.regions import Regions

METHOD = "suffix-array"
_ROWS = 50_000


def number_documents(db: Any, order: str) -> None:
    """Makes the table documents: k, the number in order of arrival; rank, by preference; part, n,
    id."""
    db.execute(
        f"""CREATE OR REPLACE TABLE documents AS
        SELECT row_number() OVER (ORDER BY part, n) - 1 AS k,
               row_number() OVER (ORDER BY {order}) - 1 AS rank, part, n, id
        FROM sketches"""
    )


def ranks(db: Any) -> np.ndarray:
    """int64[documents]: the rank of each document by its number."""
    found: np.ndarray = db.execute("SELECT rank FROM documents ORDER BY k").fetchnumpy()["rank"]
    return found


def take_passages(db: Any, found: Iterable[Passages], regions: Regions) -> None:
    """Makes the table passages: k, a, z, document and symbols; other, oa, oz: of the copy that it
    equals; later: whether that copy is preferred less."""
    db.execute(
        "CREATE OR REPLACE TABLE passages"
        "(k BIGINT, a BIGINT, z BIGINT, other BIGINT, oa BIGINT, oz BIGINT, later BOOLEAN)"
    )
    for p in found:
        here = regions.start - regions.at
        columns = {
            "k": regions.document[p.region],
            "a": p.start + here[p.region],
            "z": p.end + here[p.region],
            "other": regions.document[p.other],
            "oa": p.other_start + here[p.other],
            "oz": p.other_end + here[p.other],
            "later": p.other_start > p.start,
        }
        table = pa.table(columns)
        db.register("some_passages", table)
        db.execute("INSERT INTO passages SELECT * FROM some_passages")
        db.unregister("some_passages")


def make_spans(db: Any, keep_none: bool) -> None:
    """Makes the table spans from the passages: k, a, z, "drop", cluster, owner (the document whose
    copy is first), partner, linked (starts where the span before it ends).

    Passages that overlap in a document are made to meet.
    """
    # The first copy of what a passage holds: the other one, or itself where the other is later.
    db.execute(
        """CREATE OR REPLACE TABLE homes AS
        SELECT p.*, CASE WHEN later THEN p.k ELSE other END AS owner,
               CASE WHEN later THEN a ELSE oa END AS ca, CASE WHEN later THEN z ELSE oz END AS cz
        FROM passages p"""
    )
    db.execute("DROP TABLE passages")
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        WITH seen AS (
          SELECT h.*, d.rank, max(cz) OVER (PARTITION BY owner ORDER BY ca, cz, h.k, a
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM homes h JOIN documents d ON d.k = h.owner)
        SELECT k, a, z, other, owner, ca, cz,
               sum(CASE WHEN before IS NULL OR ca >= before THEN 1 ELSE 0 END)
                 OVER (ORDER BY rank, ca, cz, k, a ROWS UNBOUNDED PRECEDING) - 1 AS cluster
        FROM seen"""
    )
    db.execute("DROP TABLE homes")
    kept = (
        ""
        if keep_none
        else """UNION ALL
        SELECT owner, min(ca), max(cz), false, cluster, owner, NULL, false
        FROM numbered GROUP BY owner, cluster"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE spans AS
        SELECT k, greatest(a, coalesce(before, 0)) AS a, z, true AS "drop", cluster, owner,
               other AS partner, coalesce(before >= a, false) AS linked
        FROM (SELECT *, lag(z) OVER (PARTITION BY k ORDER BY a) AS before FROM numbered)
        {kept}"""
    )
    db.execute("DROP TABLE numbered")


def spans_in_order(db: Any) -> Iterator[pa.Table]:
    """k, a, z, linked and row (to put the result back) by document: what stays, then what goes."""
    db.execute(
        """CREATE OR REPLACE TABLE spans AS
        SELECT *, row_number() OVER (ORDER BY k, "drop", a, cluster) - 1 AS row FROM spans"""
    )
    last = -1
    while True:
        some = db.execute(
            f"""SELECT k, a, z, linked, row FROM spans WHERE row > {last}
            AND row <= {last + _ROWS} ORDER BY row"""
        ).fetchnumpy()
        if len(some["k"]) == 0:
            return
        yield pa.table({name: np.asarray(values) for name, values in some.items()})
        last += len(some["k"])


def replace_spans(db: Any, fitted: Iterable[pa.Table]) -> None:
    """Gives the spans new places: tables of row, a, z, in order of `spans_in_order`."""
    db.execute("CREATE OR REPLACE TABLE fitted(row BIGINT, a BIGINT, z BIGINT)")
    for table in fitted:
        db.register("some_spans", table)
        db.execute("INSERT INTO fitted SELECT row, a, z FROM some_spans")
        db.unregister("some_spans")
    db.execute(
        """CREATE OR REPLACE TABLE spans AS
        SELECT s.* REPLACE (f.a AS a, f.z AS z) FROM spans s JOIN fitted f USING (row)
        WHERE f.z > f.a"""
    )
    db.execute("DROP TABLE fitted")


def write_decisions(db: Any, path: Path, keep_none: bool) -> dict[str, int]:
    """Writes the spans as decisions; returns counts, and `cut_bytes`."""
    kept_id = "NULL::VARCHAR" if keep_none else "o.id"
    db.execute(
        f"""COPY (
        WITH real AS (SELECT DISTINCT cluster FROM spans WHERE "drop")
        SELECT d.part, d.n, s."drop", d.id, s.cluster::BIGINT AS cluster, {kept_id} AS kept_id,
               p.id AS partner_id, CASE WHEN s."drop" THEN 1.0::DOUBLE END AS similarity,
               '{METHOD}' AS method, s.a::BIGINT AS span_start, s.z::BIGINT AS span_end,
               coalesce(s.partner = s.k, false) AS local
        FROM spans s SEMI JOIN real USING (cluster)
             JOIN documents d ON d.k = s.k JOIN documents o ON o.k = s.owner
             LEFT JOIN documents p ON p.k = s.partner
        ORDER BY d.part, d.n, s.a, s.z, s."drop", s.cluster
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    row = db.execute(
        f"""SELECT count(DISTINCT cluster), count(*), count(*) FILTER ("drop"),
                   coalesce(sum(span_end - span_start) FILTER ("drop"), 0)::BIGINT
        FROM read_parquet({literal(path)})"""
    ).fetchone()
    names = ("clusters", "members", "dropped", "cut_bytes")
    return dict(zip(names, map(int, row), strict=True))
