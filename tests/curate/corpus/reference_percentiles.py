"""Reference: percentiles, buckets and shares from one query over all sketches."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from llmcurate.base.disk.database import literal

_EMPTY = """NULL::BIGINT AS cluster, NULL::VARCHAR AS kept_id, NULL::VARCHAR AS partner_id,
    NULL::DOUBLE AS similarity"""
_SPANS = "NULL::BIGINT AS span_start, NULL::BIGINT AS span_end"
BUCKET = (
    "CASE WHEN score IS NULL OR head IS NULL THEN 'all' WHEN score < head THEN 'head'"
    " WHEN score < tail THEN 'middle' ELSE 'tail' END"
)


def percentiles(db: Any, head: float, tail: float) -> dict[str, tuple[float, float]]:
    """Cuts by language over the view `sketches`."""
    rows = db.execute(
        """WITH ranked AS (
          SELECT lang, score,
                 row_number() OVER (PARTITION BY lang ORDER BY score) - 1 AS r,
                 count(*) OVER (PARTITION BY lang) - 1 AS last
          FROM sketches WHERE score IS NOT NULL)
        SELECT lang, r, last, score FROM ranked
        WHERE r IN (floor(last * ? / 100), ceil(last * ? / 100),
                    floor(last * ? / 100), ceil(last * ? / 100))
        ORDER BY lang, r""",
        [head, head, tail, tail],
    ).fetchall()
    groups: dict[str, tuple[int, dict[int, float]]] = {}
    for lang, rank, last, score in rows:
        groups.setdefault(lang, (last, {}))[1][rank] = score

    def at(last: int, scores: dict[int, float], percent: float) -> float:
        position = last * percent / 100
        low, high = scores[math.floor(position)], scores[math.ceil(position)]
        return low if low == high else low + (high - low) * (position - math.floor(position))

    return {g: (at(n, s, head), at(n, s, tail)) for g, (n, s) in groups.items()}


def buckets(db: Any, path: Path, cuts: dict[str, tuple[float, float]]) -> list[tuple[Any, ...]]:
    """Writes perplexity's decisions; returns (language, bucket, documents)."""
    db.execute("CREATE OR REPLACE TABLE cuts (lang VARCHAR, head DOUBLE, tail DOUBLE)")
    if cuts:
        db.executemany("INSERT INTO cuts VALUES (?, ?, ?)", [[k, *v] for k, v in cuts.items()])
    db.execute(
        f"""COPY (
        SELECT part, n, false AS drop, id, {_EMPTY}, 'perplexity' AS method, {_SPANS},
               score, {BUCKET} AS bucket, head, tail, first
        FROM sketches LEFT JOIN cuts USING (lang) ORDER BY part, n
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    counted: list[tuple[Any, ...]] = db.execute(
        f"""SELECT lang, bucket, count(*) FROM read_parquet({literal(path)})
        JOIN (SELECT part, n, lang FROM sketches) USING (part, n) GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    return counted


def share(db: Any, path: Path, last: int) -> tuple[int, float]:
    """Writes quality's decisions, by the score at a rank from the top; returns (kept, it)."""
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE lowest AS
        SELECT score AS threshold FROM sketches ORDER BY score DESC LIMIT 1 OFFSET {last}"""
    )
    db.execute(
        f"""COPY (
        SELECT part, n, false AS drop, id, {_EMPTY}, 'quality' AS method, {_SPANS},
               score, threshold
        FROM sketches CROSS JOIN lowest ORDER BY part, n
        ) TO {literal(path)} (FORMAT parquet)"""
    )
    kept, threshold = db.execute(
        """SELECT count(*), coalesce(any_value(threshold), 0)
        FROM sketches CROSS JOIN lowest WHERE score >= threshold"""
    ).fetchone()
    return kept, threshold
