"""Where values stand among a few thresholds: `np.searchsorted`, several times as fast.

A binary search guesses wrong at every other step for values in no order. Here a value's cell, of
many equal ones, says about where it stands, and comparisons with the thresholds say exactly.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

CELLS = 4096
CROWDED = 3  # thresholds in neighbouring cells: of more, a binary search is as fast


class Places:
    """Of sorted, different thresholds: float64[points]. side: as of `np.searchsorted`."""

    def __init__(self, points: np.ndarray, side: Literal["left", "right"]) -> None:
        self._points, self._side = points, side
        self._low = points[0]
        span = points[-1] - points[0]
        with np.errstate(over="ignore"):
            self._scale = (CELLS - 2) / span if span > 0 else 0.0
        self._starts = np.zeros(0, np.int64)
        if self._scale and np.isfinite(self._scale):
            # A cell's least value less a cell: rounding moves no value as far.
            starts = self._low + (np.arange(CELLS) - 2) / self._scale
            self._starts = np.searchsorted(points, starts, "left")
            if np.max(self._starts[4:] - self._starts[:-4]) > CROWDED:
                self._starts = np.zeros(0, np.int64)
        self._ends = np.append(points, np.nan)  # no value is above it

    def of(self, values: np.ndarray) -> np.ndarray:
        """int64[values]: how many thresholds are below each (`left`), or not above it (`right`);
        of NaN any number."""
        if not len(self._starts) or len(values) < CELLS:
            return np.searchsorted(self._points, values, self._side)
        with np.errstate(over="ignore", invalid="ignore"):
            cells = (values - self._low) * self._scale
        cells += 1.0
        np.nan_to_num(cells, copy=False, nan=0.0)
        np.clip(cells, 0, CELLS - 1, out=cells)
        at: np.ndarray = self._starts[cells.astype(np.int16)]
        while True:
            reached = self._ends[at]
            further = reached < values if self._side == "left" else reached <= values
            if not further.any():
                return at
            at += further
