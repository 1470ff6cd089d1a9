"""Head, middle and tail: percentiles of a corpus's perplexities by language, and histograms.

CCNet compares strictly: under the first cut is head, under the second middle, else tail; documents
without a model, or without a word, are `all`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BUCKETS = ("head", "middle", "tail", "all")
BINS = 40
Cuts = dict[str, tuple[float, float]]
# The bucket of a row of `sketches` with the cuts (head, tail) of its language.
BUCKET_SQL = (
    "CASE WHEN score IS NULL OR head IS NULL THEN 'all' WHEN score < head THEN 'head'"
    " WHEN score < tail THEN 'middle' ELSE 'tail' END"
)


def percentiles(db: Any, head: float, tail: float) -> Cuts:
    """Cuts by language over the view `sketches` (lang, score): exact percentiles, between ranks by
    the straight line, as numpy has them. Sorting is DuckDB's, which spills."""
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
    found: dict[str, tuple[int, dict[int, float]]] = {}
    for lang, rank, last, score in rows:
        found.setdefault(lang, (last, {}))[1][rank] = score

    def at(last: int, scores: dict[int, float], percent: float) -> float:
        place = last * percent / 100
        low, high = scores[math.floor(place)], scores[math.ceil(place)]
        return low + (high - low) * (place - math.floor(place))

    return {g: (at(n, s, head), at(n, s, tail)) for g, (n, s) in found.items()}


def histogram(db: Any, lang: str) -> dict[str, Any]:
    """Documents of a language by perplexity, in bins of equal width of its logarithm: as
    report/bins.py dumps them."""
    low, high = db.execute(
        "SELECT min(score), max(score) FROM sketches WHERE lang = ? AND score IS NOT NULL", [lang]
    ).fetchone()
    least, most = math.log10(1 + low), math.log10(1 + high)
    width = max((most - least) / BINS, 1e-6)
    rows = db.execute(
        """SELECT least(?, floor((log10(1 + score) - ?) / ?))::INTEGER AS bin, count(*)
        FROM sketches WHERE lang = ? AND score IS NOT NULL GROUP BY bin""",
        [BINS - 1, least, width, lang],
    ).fetchall()
    counts = np.zeros(BINS, np.int64)
    for place, number in rows:
        counts[max(0, place)] += number
    edges = 10 ** (least + width * np.arange(BINS + 1)) - 1
    return {
        "scale": "log",
        "edges": [round(e, 6) for e in edges.tolist()],
        "counts": counts.tolist(),
    }
