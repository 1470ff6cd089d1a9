"""Head, middle and tail: percentiles of a corpus's perplexities by language, and histograms.

CCNet compares strictly: under the first cut is head, under the second middle, else tail; documents
without a model, or without a word, are `all`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BUCKETS = ("head", "middle", "tail", "all")
ALL = BUCKETS.index("all")
BINS = 40
MOST = 1e300  # perplexities above, infinite ones too, stand in the last bin
Cuts = dict[str, tuple[float, float]]


def ranks_between(scores: int, percent: float) -> tuple[int, int]:
    """The ranks (from 0) that a percentile of so many scores lies between."""
    place = (scores - 1) * percent / 100
    return math.floor(place), math.ceil(place)


def percentile(scores: int, ranked: dict[int, float], percent: float) -> float:
    """The exact percentile, between ranks by the straight line, as numpy has it. ranked: scores by
    rank."""
    low, high = (ranked[rank] for rank in ranks_between(scores, percent))
    place = (scores - 1) * percent / 100
    return low + (high - low) * (place - math.floor(place))


def bucket_of(score: np.ndarray, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
    """int8[rows]: places in BUCKETS; all are float64[rows], NaN: no score, or no cuts."""
    found = np.where(score < head, 0, np.where(score < tail, 1, 2))
    return np.where(np.isnan(score) | np.isnan(head), ALL, found).astype(np.int8)


def bins_of(low: float, high: float) -> tuple[float, float]:
    """(logarithm where the first bin begins, width) of bins from the least to the greatest score,
    of equal width of the logarithm."""
    least, most = math.log10(1 + min(low, MOST)), math.log10(1 + min(high, MOST))
    return least, max((most - least) / BINS, 1e-6)


def bin_counts(score: np.ndarray, least: float, width: float) -> np.ndarray:
    """int64[BINS]: scores by bin."""
    place = np.floor((np.log10(1 + np.minimum(score, MOST)) - least) / width)
    return np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)


def histogram(counts: np.ndarray, least: float, width: float) -> dict[str, Any]:
    """As inspect/report/bins.py dumps them."""
    edges = 10 ** (least + width * np.arange(BINS + 1)) - 1
    return {
        "scale": "log",
        "edges": [round(e, 6) for e in edges.tolist()],
        "counts": counts.tolist(),
    }
