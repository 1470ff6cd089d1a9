"""Which copy of each passage stays: from the sketches of a corpus to decisions, in DuckDB.

Only hashes and positions are looked at, and passages that stand once leave at the first step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.database import literal


def decide(db: Any, path: Path, order: str, method: str) -> dict[str, int]:
    """Writes the decisions on every passage that stands more than once; returns counts.

    sketches.high, low, first, last: lists, the keys of a document's passages and where they stand
    in bytes; order: ORDER BY terms by which documents are preferred. Of each passage the first one
    in the document preferred most stays. Besides the columns of the contract: `local`, whether
    the copy that stays is in the same document.
    """
    # Half of the key finds candidates in half of the memory; the whole key decides.
    db.execute(
        """CREATE OR REPLACE TABLE members AS
        WITH shared AS (
               SELECT low FROM (SELECT unnest(low) AS low FROM sketches)
               GROUP BY low HAVING count(*) > 1),
             passages AS (
               SELECT part, n, unnest(high) AS high, unnest(low) AS low,
                      unnest("first") AS a, unnest("last") AS z
               FROM sketches)
        SELECT part, n, high, low, a, z FROM passages SEMI JOIN shared USING (low)"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE candidates AS
        SELECT row_number() OVER (ORDER BY {order}) - 1 AS k, part, n, id
        FROM sketches SEMI JOIN members USING (part, n)"""
    )
    # A place is the document's rank and the byte in it, as one number: 2^31 candidates of 4 GiB.
    db.execute(
        """CREATE OR REPLACE TABLE places AS
        SELECT m.high, m.low, m.a, m.z, c.k, (c.k << 32) + m.a AS place
        FROM members m JOIN candidates c USING (part, n)"""
    )
    db.execute("DROP TABLE members")
    db.execute(
        """CREATE OR REPLACE TABLE owners AS
        WITH shared AS (
          SELECT high, low, min(place) AS place, count(*) AS copies
          FROM places GROUP BY high, low HAVING count(*) > 1)
        SELECT high, low, place, place >> 32 AS keeper, copies, c.id AS kept_id,
               row_number() OVER (ORDER BY c.id, place & 4294967295) - 1 AS cluster
        FROM shared JOIN candidates c ON c.k = place >> 32"""
    )
    db.execute(
        f"""COPY (
        SELECT c.part, c.n, p.place <> o.place AS drop, c.id, o.cluster::BIGINT AS cluster,
               o.kept_id, CASE WHEN p.place <> o.place THEN o.kept_id END AS partner_id,
               CASE WHEN p.place <> o.place THEN 1.0::DOUBLE END AS similarity,
               '{method}' AS method, p.a::BIGINT AS span_start, p.z::BIGINT AS span_end,
               p.k = o.keeper AS local
        FROM places p JOIN owners o USING (high, low) JOIN candidates c USING (k)
        ORDER BY c.part, c.n, p.a) TO {literal(path)} (FORMAT parquet)"""
    )
    clusters, members = db.execute(
        "SELECT count(*), coalesce(sum(copies), 0) FROM owners"
    ).fetchone()
    return {"clusters": clusters, "members": int(members), "dropped": int(members) - clusters}
