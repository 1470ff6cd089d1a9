"""Reference: exact duplicates from one query over all sketches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.dedup import survivors
from llmcurate.base.disk.database import literal


def decide(db: Any, path: Path, survivor: str, method: str) -> dict[str, Any]:
    """Writes the decisions from the view `sketches`; returns counts."""
    order = survivors.preference(survivor)
    db.execute(
        f"""CREATE OR REPLACE TABLE members AS
        WITH shared AS (
          SELECT key FROM sketches WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1)
        SELECT part, n, id, key,
               row_number() OVER (PARTITION BY key ORDER BY {order}) AS rank,
               first_value(id) OVER (PARTITION BY key ORDER BY {order}) AS kept_id
        FROM sketches WHERE key IN (SELECT key FROM shared)"""
    )
    db.execute(
        """CREATE OR REPLACE TABLE numbered AS
        SELECT key, row_number() OVER (ORDER BY min(kept_id)) - 1 AS cluster
        FROM members GROUP BY key"""
    )
    db.execute(
        f"""COPY (
        SELECT part, n, rank > 1 AS drop, id, cluster::BIGINT AS cluster, kept_id,
               CASE WHEN rank > 1 THEN kept_id END AS partner_id,
               CASE WHEN rank > 1 THEN 1.0::DOUBLE END AS similarity,
               '{method}' AS method, NULL::BIGINT AS span_start, NULL::BIGINT AS span_end
        FROM members JOIN numbered USING (key) ORDER BY part, n
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    clusters, members = db.execute("SELECT count(DISTINCT key), count(*) FROM members").fetchone()
    return {"clusters": clusters, "members": members, "dropped": members - clusters}
