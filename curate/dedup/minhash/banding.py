"""Bands and rows: published choices, choices for a threshold, and the S-curve of a choice.

Two documents of Jaccard similarity s share one band of r rows with probability s^r, and at least
one of b bands with 1 - (1 - s^r)^b (Rajaraman and Ullman, Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf, log1p
from typing import Any

import numpy as np

from llmcurate.base.disk.units import counted

# name -> (bands, rows). A preset says nothing of shingles or normal forms, in which these
# pipelines differ too.
PRESETS: dict[str, tuple[int, int]] = {
    "fineweb": (14, 8),  # Penedo et al. 2024 (FineWeb); the defaults of DataTrove
    "lee2022": (450, 20),  # Lee et al. 2022: 9,000 hashes, 450 bands of 20
    "refinedweb": (450, 20),  # Penedo et al. 2023: as Lee et al.
    "dclm": (93, 15),  # Li et al. 2024 (DCLM): 1,395 hashes
}
# The Jaccard similarity that a preset verifies matches by. Lee et al. 2022 go on with pairs whose
# edit similarity is above 0.8 (read in others' accounts, not at the source). That costs the product
# of two lengths a pair; here the exact Jaccard similarity stands for it, which the bands aim at.
VERIFIED = {"lee2022": 0.8}
SIMILARITIES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def predicted(bands: int, rows: int, similarity: float) -> float:
    """The probability that two documents of that Jaccard similarity share a band."""
    return 1.0 - (1.0 - similarity**rows) ** bands


def midpoint(bands: int, rows: int) -> float:
    """The Jaccard similarity at which half of the pairs share a band."""
    return float((1.0 - 0.5 ** (1.0 / bands)) ** (1.0 / rows))


def estimate(share: float, rows: int) -> float:
    """The Jaccard similarity of which `share` is the expected share of equal bands."""
    return float(share ** (1.0 / rows))


def curve_lines(bands: int, rows: int) -> list[str]:
    """The S-curve as two lines of a table, after one that says what it is of."""
    head = "  Jaccard  " + "".join(f"{s:>8.2f}" for s in SIMILARITIES)
    shares = "  found    " + "".join(f"{predicted(bands, rows, s):>8.1%}" for s in SIMILARITIES)
    half = f"half of the pairs at {midpoint(bands, rows):.3f}"
    return [f"minhash: {bands} bands of {counted(rows, 'row')}; {half}", head, shares]


def curve(bands: int, rows: int, steps: int = 100) -> dict[str, Any]:
    """The S-curve as the report draws it, with a mark where half of the pairs are found."""
    x = [i / steps for i in range(steps + 1)]
    middle = midpoint(bands, rows)
    return {
        "title": f"MinHash, {bands} bands of {counted(rows, 'row')}",
        "x_label": "Jaccard similarity of two documents",
        "y_label": "probability that they share a band",
        "x": x,
        "y": [predicted(bands, rows, s) for s in x],
        "mark": [middle, 0.5, f"half of the pairs at {middle:.3f}"],
    }


# Bands and rows for a threshold are chosen in one of two ways. datasketch's makes the weighted sum
# of two areas least: that under the S-curve below the threshold (false positives) and that above
# the curve beyond it (false negatives; Zhu, MinHashLSH). The other takes, of all that find a pair
# at the threshold with a probability of at least `recall`, the one with the least false positives.
# Areas are integrals over similarities, so all similarities count as equally frequent; in a corpus
# low ones are far more frequent.

PERMUTATIONS = 128  # datasketch's default
MOST_BANDS = 10_000  # bands that are thought of
_NODES = 64  # of the quadrature, exact to about 1e-12 for the curves of up to 10,000 hashes


@lru_cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(_NODES)


def _area(low: float, high: float, bands: np.ndarray, rows: int, shared: bool) -> np.ndarray:
    """The integral from low to high of the probability that a pair is found, or is not."""
    nodes, weights = _quadrature()
    similarity = low + (high - low) * (nodes + 1) / 2
    missed = (1 - similarity**rows) ** bands[:, None]
    area: np.ndarray = ((1 - missed) if shared else missed) @ weights * (high - low) / 2
    return area


def false_positives(threshold: float, bands: np.ndarray, rows: int) -> np.ndarray:
    """float64[bands]: the area under the S-curve below the threshold, for each number of bands."""
    return _area(0.0, threshold, bands, rows, True)


def false_negatives(threshold: float, bands: np.ndarray, rows: int) -> np.ndarray:
    """float64[bands]: the area above the S-curve from the threshold on."""
    return _area(threshold, 1.0, bands, rows, False)


@lru_cache
def least_error(
    threshold: float, permutations: int = PERMUTATIONS, weight: float = 0.5
) -> tuple[int, int]:
    """(bands, rows) with the least weight * false positives + (1 - weight) * false negatives:
    datasketch's choice with weights=(weight, 1 - weight)."""
    best = (np.inf, 0, 0)
    for rows in range(1, permutations + 1):
        bands = np.arange(1, permutations // rows + 1)
        error = weight * false_positives(threshold, bands, rows)
        error += (1 - weight) * false_negatives(threshold, bands, rows)
        at = int(np.argmin(error))
        best = min(best, (float(error[at]), int(bands[at]), rows))
    return best[1], best[2]


def bands_for(threshold: float, recall: float, rows: int) -> int:
    """The least number of bands that find a pair at the threshold with that probability;
    MOST_BANDS + 1 where it takes more."""
    share = threshold**rows  # probability that a band is shared
    if share >= 1.0:
        return 1
    fewest = log1p(-recall) / log1p(-share) if share > 0.0 else inf
    if fewest > MOST_BANDS:
        return MOST_BANDS + 1
    bands = ceil(fewest)
    # Rounding may put the quotient on either side of a whole number.
    while bands > 1 and predicted(bands - 1, rows, threshold) >= recall:
        bands -= 1
    return bands if predicted(bands, rows, threshold) >= recall else bands + 1


@lru_cache
def with_recall(
    threshold: float, recall: float, permutations: int = PERMUTATIONS
) -> tuple[int, int]:
    """(bands, rows) that find a pair at the threshold with a probability of `recall` or more, with
    the least false positives; ValueError where no choice does."""
    best = (np.inf, 0, 0)
    for rows in range(1, permutations + 1):
        bands = bands_for(threshold, recall, rows)  # with more of them there are more positives
        if bands * rows > permutations:
            continue
        area = float(false_positives(threshold, np.array([bands]), rows)[0])
        best = min(best, (area, bands, rows))
    if not best[1]:
        most = predicted(permutations, 1, threshold)
        raise ValueError(
            f"no bands and rows of {permutations} permutations find a pair of similarity"
            f" {threshold:g} with probability {recall:g} (at most {most:.4f}); raise permutations"
        )
    return best[1], best[2]
