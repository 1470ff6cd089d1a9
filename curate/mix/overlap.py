"""What sources have in common, and how much of the mix is text that stands in it nowhere else.

Texts are compared by their hash (xxh3-128), as exact dedup does by default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.database import database, literal


def overlap(rows: Path, groups: list[str]) -> dict[str, Any]:
    """Figures of the rows that `settle` marked (grp, hash, size, taken).

    documents[a][b], size[a][b]: of a, what stands in b too; on the diagonal, what stands in a
    more than once, but for one copy of each. unique_documents, unique: of the mix, every text once.
    """
    many = len(groups)
    documents = [[0] * many for _ in groups]
    size = [[0] * many for _ in groups]
    with database(rows.with_name(".spill-overlap")) as db:
        db.execute(
            f"""CREATE TABLE texts AS
            SELECT hash, grp, count(*) AS n, sum(size)::BIGINT AS s, max(size) AS one,
                   bool_or(taken) AS taken
            FROM read_parquet({literal(rows)}) GROUP BY hash, grp"""
        )
        pairs = db.execute(
            """WITH shared AS (
                 SELECT * FROM texts WHERE hash IN (
                   SELECT hash FROM texts GROUP BY hash HAVING count(*) > 1))
            SELECT a.grp, b.grp, sum(a.n)::BIGINT, sum(a.s)::BIGINT
            FROM shared a JOIN shared b USING (hash) WHERE a.grp <> b.grp GROUP BY a.grp, b.grp"""
        ).fetchall()
        inner = db.execute(
            "SELECT grp, sum(n - 1)::BIGINT, sum(s - one)::BIGINT FROM texts GROUP BY grp"
        ).fetchall()
        for a, b, n, s in [*pairs, *((g, g, n, s) for g, n, s in inner)]:
            documents[a][b], size[a][b] = n, s
        ((unique_documents, unique),) = db.execute(
            """SELECT count(*), coalesce(sum(one), 0)::BIGINT
            FROM (SELECT max(one) AS one FROM texts WHERE taken GROUP BY hash)"""
        ).fetchall()
    return {
        "by": "exact text",
        "groups": groups,
        "documents": documents,
        "size": size,
        "unique_documents": unique_documents,
        "unique": unique,
    }
