"""Whether a model's scores mean what they say: of texts with score 0.8, are 80 % right?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BINS = 10  # of equal width


def calibration(bins: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The expected calibration error (Guo et al. 2017, "On Calibration of Modern Neural Networks",
    2) and the reliability of each bin that holds a text.

    bins: for each, texts, how many are right, the sum of their scores. The error is the mean
    distance between score and accuracy of the bins, by their texts; None where there is none.
    """
    texts = sum(bin[0] for bin in bins)
    error = sum(abs(right - score) for _, right, score in bins)
    return {
        "error": round(error / texts, 6) if texts else None,
        "bins": [
            {
                "from": place / len(bins),
                "texts": int(n),
                "score": round(score / n, 6),
                "accuracy": round(right / n, 6),
            }
            for place, (n, right, score) in enumerate(bins)
            if n
        ],
    }
