"""From the places of windows in all documents to decisions, in DuckDB.

A document is contaminated by an item where it holds enough of the item's windows: any of them, or
the share that is asked for. Windows in more documents than `max_hits` count for nothing: GPT-3
"ignored 13-grams that matched more than 10 training documents, as inspection showed the majority of
these to contain common cultural phrases, legal boilerplate" (Brown et al. 2020, appendix C).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from curate.corpus.sketches import Sketches
from curate.dedup.decontaminate.windows import Windows
from curate.disk.database import literal


def item_tables(windows: Windows) -> tuple[pa.Table, pa.Table]:
    """(items: item, name, corpus, windows; item_grams: item, gram, one row a different window)."""
    items = pa.table(
        {
            "item": np.arange(len(windows.items)),
            "name": pa.array([i.id for i in windows.items], pa.string()),
            "corpus": pa.array([i.set for i in windows.items], pa.string()),
            "windows": windows.distinct,
        }
    )
    item, gram = windows.pairs
    return items, pa.table({"item": item, "gram": gram})


def decide(
    sketches: Sketches,
    windows: Windows,
    method: str,
    threshold: float,
    max_hits: int | None,
    cut: bool,
) -> dict[str, Any]:
    """Writes the decisions; returns counts. threshold: the least share of an item's windows, 0 for
    any; cut: passages go, with the context that the sketches have, not documents.

    Leaves the tables `common` (windows that are ignored, and their documents), `matches` (part, n,
    item, held, share: what documents hold of items) and `contaminated` (those that count).
    """
    db = sketches.connection
    for name, table in zip(("given_items", "given_grams"), item_tables(windows), strict=True):
        db.register(name, table)
    db.execute("CREATE OR REPLACE TABLE items AS SELECT * FROM given_items")
    db.execute("CREATE OR REPLACE TABLE item_grams AS SELECT * FROM given_grams")
    db.execute(
        """CREATE OR REPLACE TABLE held AS
        SELECT DISTINCT part, n, gram FROM (
          SELECT part, n, unnest(gram) AS gram FROM sketches WHERE len(gram) > 0)"""
    )
    limit = "FALSE" if max_hits is None else f"count(*) > {max_hits}"
    db.execute(
        f"""CREATE OR REPLACE TABLE common AS
        SELECT gram, count(*) AS documents FROM held GROUP BY gram HAVING {limit}"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE matches AS
        SELECT part, n, item, count(*) AS held, count(*) / any_value(windows) AS share
        FROM held ANTI JOIN common USING (gram)
        JOIN item_grams USING (gram) JOIN items USING (item)
        GROUP BY part, n, item"""
    )
    db.execute(
        f"""CREATE OR REPLACE TABLE contaminated AS
        SELECT * FROM matches WHERE share >= {threshold!r}"""
    )
    if cut:
        rows = _passages(db)
    else:
        rows = """SELECT part, n, item, share, NULL::BIGINT AS a, NULL::BIGINT AS z
        FROM contaminated QUALIFY row_number() OVER (
          PARTITION BY part, n ORDER BY share DESC, held DESC, item) = 1"""
    db.execute(
        f"""COPY (
        SELECT c.part, c.n, TRUE AS drop, s.id, c.item::BIGINT AS cluster, i.name AS kept_id,
               i.name AS partner_id, c.share::DOUBLE AS similarity, '{method}' AS method,
               c.a AS span_start, c.z AS span_end, i.corpus AS partner_corpus
        FROM ({rows}) c JOIN items i USING (item)
        JOIN (SELECT part, n, id FROM sketches) s ON s.part = c.part AND s.n = c.n
        ORDER BY c.part, c.n, c.a) TO {literal(sketches.decisions)} (FORMAT parquet)"""
    )
    clusters, members = db.execute(
        f"SELECT count(DISTINCT cluster), count(*) FROM read_parquet({literal(sketches.decisions)})"
    ).fetchone()
    (documents,) = db.execute(
        "SELECT count(*) FROM (SELECT DISTINCT part, n FROM contaminated)"
    ).fetchone()
    return {
        "clusters": clusters,
        "members": members,
        "dropped": members,
        "contaminated_documents": documents,
    }


def _passages(db: Any) -> str:
    """SQL of the passages to cut: matches of items that count, with their context, joined where
    they touch; of each, the item that has most of its windows there."""
    db.execute(
        """CREATE OR REPLACE TABLE places AS
        SELECT h.part, h.n, h.gram, h.a, h.z, c.item, c.share
        FROM (SELECT part, n, unnest(gram) AS gram, unnest(wide_first) AS a, unnest(wide_last) AS z
              FROM sketches WHERE len(gram) > 0) h
        ANTI JOIN common USING (gram) JOIN item_grams USING (gram)
        JOIN contaminated c USING (part, n, item)"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        WITH reached AS (
          SELECT part, n, a, z, max(z) OVER (
            PARTITION BY part, n ORDER BY a, z
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM (SELECT DISTINCT part, n, a, z FROM places))
        SELECT *, count(*) FILTER (before IS NULL OR a > before)
          OVER (PARTITION BY part, n ORDER BY a, z) AS run FROM reached"""
    )
    return """SELECT part, n, item, share, a, z FROM (
      SELECT part, n, run, min(a) AS a, max(z) AS z FROM numbered GROUP BY part, n, run)
    JOIN (
      SELECT part, n, run, item, any_value(share) AS share
      FROM numbered JOIN places USING (part, n, a, z) GROUP BY part, n, run, item
      QUALIFY row_number() OVER (PARTITION BY part, n, run
        ORDER BY count(DISTINCT gram) DESC, any_value(share) DESC, item) = 1
    ) USING (part, n, run)"""
