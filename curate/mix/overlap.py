"""What sources have in common, and how much of the mix is text that stands in it nowhere else.

Texts are the same by their hash (xxh3-128, as exact dedup compares by default) or by the bands of
MinHash (near.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.database import database, literal


def overlap(rows: Path, groups: list[str], bands: Path | None = None) -> dict[str, Any]:
    """Figures of the rows that `settle` marked (grp, hash, size, taken). bands: of near copies.

    documents[a][b], size[a][b]: of a, what stands in b too; on the diagonal, what stands in a
    more than once, but for one copy of each. unique_documents, unique: of the mix, every text once.
    """
    many = len(groups)
    documents = [[0] * many for _ in groups]
    size = [[0] * many for _ in groups]
    with database(rows.with_name(".spill-overlap")) as db:
        read = f"read_parquet({literal(rows)}, file_row_number = true)"
        if bands is None:
            texts = f"SELECT hash AS text, grp, size, taken FROM {read}"
        else:
            from curate.mix.near import clusters

            clusters(db, bands)
            texts = f"""SELECT coalesce(label, file_row_number) AS text, grp, size, taken
            FROM {read} r LEFT JOIN clusters c ON r.file_row_number = c.row"""
        db.execute(
            f"""CREATE TABLE texts AS
            SELECT text, grp, count(*) AS n, sum(size)::BIGINT AS s, max(size) AS one,
                   max(size) FILTER (taken) AS best
            FROM ({texts}) GROUP BY text, grp"""
        )
        pairs = db.execute(
            """WITH shared AS (
                 SELECT * FROM texts WHERE text IN (
                   SELECT text FROM texts GROUP BY text HAVING count(*) > 1))
            SELECT a.grp, b.grp, sum(a.n)::BIGINT, sum(a.s)::BIGINT
            FROM shared a JOIN shared b USING (text) WHERE a.grp <> b.grp GROUP BY a.grp, b.grp"""
        ).fetchall()
        inner = db.execute(
            "SELECT grp, sum(n - 1)::BIGINT, sum(s - one)::BIGINT FROM texts GROUP BY grp"
        ).fetchall()
        for a, b, n, s in [*pairs, *((g, g, n, s) for g, n, s in inner)]:
            documents[a][b], size[a][b] = n, s
        ((unique_documents, unique),) = db.execute(
            """SELECT count(*), coalesce(sum(best), 0)::BIGINT
            FROM (SELECT max(best) AS best FROM texts GROUP BY text HAVING max(best) IS NOT NULL)"""
        ).fetchall()
    return {
        "by": "exact text" if bands is None else "near copies by MinHash",
        "groups": groups,
        "documents": documents,
        "size": size,
        "unique_documents": unique_documents,
        "unique": unique,
    }
