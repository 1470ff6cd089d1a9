"""Intervals: of figures that are one sum over another, by bootstrap (Efron 1979), and of the mean
of a few runs, by Student's distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 1000
SHARE = 0.95  # of the resamples that an interval holds


def interval(above: npt.NDArray[Any], below: npt.NDArray[Any], seed: int) -> list[float] | None:
    """The interval of sum(``above``) / sum(``below``) over documents or questions, drawn anew with
    replacement; both are [items]. The same seed gives the same one; None of a single item.
    """
    count = len(above)
    if count < 2:
        return None
    draw = np.random.default_rng(seed)
    ratios = np.empty(RESAMPLES)
    for turn in range(RESAMPLES):
        taken = draw.integers(count, size=count)
        ratios[turn] = above[taken].sum() / max(float(below[taken].sum()), 1e-300)
    low, high = np.quantile(ratios, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return [float(low), float(high)]


def interval_of_mean(values: Sequence[float]) -> list[float] | None:
    """The interval of the mean of values that are normal about it (Student 1908): of runs that
    differ in their seeds, of which a resample would hold the same few. None of a single value.
    """
    from scipy.special import stdtrit

    count = len(values)
    if count < 2:
        return None
    half = stdtrit(count - 1, (1 + SHARE) / 2) * np.std(values, ddof=1) / count**0.5
    mean = np.mean(values)
    return [float(mean - half), float(mean + half)]
