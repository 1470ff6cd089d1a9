"""Paired differences of bits a byte: two sets of runs, from the same seeds, on the same documents.

The figure is the sum of all nats over ln 2 and over all bytes, of the one set less the other's.
Chance enters it by the documents that are scored and by the seeds that are trained from. Documents
are drawn anew with replacement within their source (bootstrap, Efron 1979). Three seeds are too few
for that: resamples of three values lie too close, and an interval by percentiles holds the truth
too seldom. So each of the two parts of the variance is multiplied by the quantile of Student's
distribution with as many degrees of freedom as it has, squared, and the sum's root is half of the
interval: exact where one part is all there is, a little too wide where both count. What of a
document's difference changes from seed to seed is in both parts, and counts as the seeds'.

Figures are of these corpora: nothing here says how another crawl would differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Figure = str | float | list[float] | None  # of a table of results
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


@dataclass(frozen=True)
class Mean:
    """A mean over seeds. interval: of 95 %, None of one seed."""

    mean: float
    interval: list[float] | None
    values: list[float]

    @classmethod
    def over(cls, values: list[float]) -> Mean:
        """Of values that seeds gave."""
        return cls(float(np.mean(values)), interval_of_mean(values), values)

    @property
    def sign(self) -> int | None:
        """-1 or 1 where the interval leaves out 0, 0 where it holds it; None without one."""
        if self.interval is None:
            return None
        return (self.interval[0] > 0) - (self.interval[1] < 0)

    def text(self, sign: str = "+") -> str:
        """`-0.0120 (-0.0180 to -0.0060)`; without an interval the mean alone."""
        ends = self.interval
        limits = f" ({ends[0]:{sign}.4f} to {ends[1]:{sign}.4f})" if ends else ""
        return f"{self.mean:{sign}.4f}{limits}"


POWER = 0.8  # of the experiments that find a difference which is there
CELLS = 1 << 20  # of a block of resamples

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """``value``: bits a byte, the second set of runs less the first; ``by_seed``: of each seed.
    The variances of ``value``: by seeds, and by documents without what is counted there; None of a
    single seed or document.
    """

    value: float
    by_seed: tuple[float, ...]
    documents: int
    seed_variance: float | None
    document_variance: float | None

    @property
    def interval(self) -> list[float] | None:
        """Of 95 %; None of a single seed or document."""
        from scipy.special import stdtrit

        half = self._joined(lambda freedom: float(stdtrit(freedom, (1 + SHARE) / 2)))
        return None if half is None else [self.value - half, self.value + half]

    def detectable(self, seeds: int | None = None) -> float | None:
        """The least difference that an experiment with such variances, from so many ``seeds``,
        finds in 80 % of cases: its interval of 95 % leaves out 0.
        """
        from scipy.special import nctdtrinc, stdtrit

        def shift(freedom: float) -> float:
            limit = stdtrit(freedom, (1 + SHARE) / 2)
            return float(nctdtrinc(freedom, 1 - POWER, limit))

        return self._joined(shift, seeds)

    def _joined(self, factor: Callable[[float], float], seeds: int | None = None) -> float | None:
        """The root of both variances, each times the square of a factor of its degrees of freedom;
        as it would be from another number of seeds."""
        own = len(self.by_seed)
        count = seeds or own
        if self.seed_variance is None or self.document_variance is None or count < 2:
            return None
        of_seeds = factor(count - 1) ** 2 * self.seed_variance * own / count
        return math.sqrt(of_seeds + factor(self.documents - 1) ** 2 * self.document_variance)

    def to_json(self) -> dict[str, Figure]:
        return {
            "mean": self.value,
            "interval": self.interval,
            "values": list(self.by_seed),
            "deviation_of_seeds": _root(self.seed_variance),
            "deviation_of_documents": _root(self.document_variance),
        }


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def paired_difference(
    base: Floats, other: Floats, sizes: npt.NDArray[np.int64], strata: Any, *, seed: int
) -> Difference:
    """Of ``other`` from ``base``, both the nats [seeds, documents] of the same seeds and documents,
    whose UTF-8 bytes are ``sizes``. ``strata``: a number for each document; as many are drawn of
    each as there are, and those that stand alone count as of one. ``seed``: of the draws.
    """
    bits = (other - base) / math.log(2)
    seeds, documents = bits.shape
    total = max(float(sizes.sum()), 1e-300)
    by_seed = bits.sum(axis=1) / total
    seed_variance = document_variance = None
    if seeds > 1:
        seed_variance = float(np.var(by_seed, ddof=1)) / seeds
    if documents > 1:
        drawn, correction = resampled(bits, sizes, strata, seed)
        of_mean = float(np.var(drawn.mean(axis=1)))
        apart = drawn - drawn.mean(axis=1, keepdims=True)
        shared = float(np.var(apart, axis=0).sum()) / max(1, seeds - 1) / seeds
        document_variance = max(0.0, of_mean - shared) * correction
    return Difference(
        value=float(by_seed.mean()),
        by_seed=tuple(map(float, by_seed)),
        documents=documents,
        seed_variance=seed_variance,
        document_variance=document_variance,
    )


def resampled(
    bits: Floats, sizes: npt.NDArray[np.int64], strata: Any, seed: int
) -> tuple[Floats, float]:
    """([resamples, seeds] bits a byte of documents drawn anew, what their variance is multiplied by
    to be without bias).
    """
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    codes = np.where(counts[codes] == 1, len(counts), codes)
    groups = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    columns = np.vstack([bits, sizes]).T
    draw = np.random.default_rng(seed)
    sums = np.zeros((RESAMPLES, columns.shape[1]))
    for group in groups:
        rows = max(1, CELLS // len(group))
        shares = np.full(len(group), 1 / len(group))
        for first in range(0, RESAMPLES, rows):
            block = slice(first, min(first + rows, RESAMPLES))
            times = draw.multinomial(len(group), shares, size=block.stop - first)
            sums[block] += times @ columns[group]
    ratios = sums[:, :-1] / np.maximum(sums[:, -1:], 1e-300)
    return ratios, len(codes) / max(1, len(codes) - len(groups))
