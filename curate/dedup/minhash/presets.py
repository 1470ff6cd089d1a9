"""Bands and rows: published choices, and the S-curve that a choice makes.

Two documents of Jaccard similarity s share one band of r rows with probability s^r, and at least
one of b bands with 1 - (1 - s^r)^b (Rajaraman and Ullman, Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

from typing import Any

# name -> (bands, rows). A preset says nothing of shingles or normal forms, in which these
# pipelines differ too.
PRESETS: dict[str, tuple[int, int]] = {
    "fineweb": (14, 8),  # Penedo et al. 2024 (FineWeb); the defaults of DataTrove
    "lee2022": (450, 20),  # Lee et al. 2022: 9,000 hashes, 450 bands of 20
    "refinedweb": (450, 20),  # Penedo et al. 2023: as Lee et al.
    "dclm": (93, 15),  # Li et al. 2024 (DCLM): 1,395 hashes
}
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


def curve_text(bands: int, rows: int) -> str:
    """The S-curve as two lines of a table, after one that says what it is of."""
    head = "  Jaccard  " + "".join(f"{s:>8.2f}" for s in SIMILARITIES)
    found = "  found    " + "".join(f"{predicted(bands, rows, s):>8.1%}" for s in SIMILARITIES)
    half = f"half of the pairs at {midpoint(bands, rows):.3f}"
    return f"minhash: {bands} bands of {rows} rows; {half}\n{head}\n{found}"


def curve(bands: int, rows: int, steps: int = 100) -> dict[str, Any]:
    """The S-curve as the report draws it, with a mark where half of the pairs are found."""
    x = [i / steps for i in range(steps + 1)]
    middle = midpoint(bands, rows)
    return {
        "title": f"MinHash, {bands} bands of {rows} rows",
        "x_label": "Jaccard similarity of two documents",
        "y_label": "probability that they share a band",
        "x": x,
        "y": [predicted(bands, rows, s) for s in x],
        "mark": [middle, 0.5, f"half of the pairs at {middle:.3f}"],
    }
