"""Paired differences between the scores of two sets of runs, which have the same seeds and are
scored on the same documents.

The difference varies with the scored documents and with the seeds. Its variance over documents is
estimated by resampling the documents of each source (bootstrap, Efron 1979). With three seeds,
percentile intervals would be too narrow. So each variance, over documents and over seeds, is
multiplied by the squared quantile of Student's distribution with its degrees of freedom. The square
root of the sum of both products is half of the interval's width. The interval is exact if one
variance is 0, else a little too wide.

The interval holds for these corpora. It does not say what the difference is on another crawl.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Figure = str | float | list[float] | None  # a cell in a table of results
RESAMPLES = 1000
SHARE = 0.95  # coverage of intervals


def interval(parts: npt.NDArray[Any], totals: npt.NDArray[Any], seed: int) -> list[float] | None:
    """Return the 95 % bootstrap interval of sum(``parts``) / sum(``totals``), or None for a single
    item. Both arrays have a number for each item, such as a document."""
    count = len(parts)
    if count < 2:
        return None
    draw = np.random.default_rng(seed)
    ratios = np.empty(RESAMPLES)
    for turn in range(RESAMPLES):
        drawn = draw.integers(count, size=count)
        ratios[turn] = parts[drawn].sum() / max(float(totals[drawn].sum()), 1e-300)
    low, high = np.quantile(ratios, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return [float(low), float(high)]


def interval_of_mean(values: Sequence[float]) -> list[float] | None:
    """Return the 95 % interval of the mean of normal values (Student 1908); None for one value."""
    from scipy.special import stdtrit

    count = len(values)
    if count < 2:
        return None
    half = stdtrit(count - 1, (1 + SHARE) / 2) * np.std(values, ddof=1) / count**0.5
    mean = np.mean(values)
    return [float(mean - half), float(mean + half)]


@dataclass(frozen=True)
class Mean:
    """A mean over seeds. ``interval`` is its 95 % interval, None for a single seed."""

    mean: float
    interval: list[float] | None
    values: list[float]

    @classmethod
    def over(cls, values: list[float]) -> Mean:
        return cls(float(np.mean(values)), interval_of_mean(values), values)

    @property
    def sign(self) -> int | None:
        """The sign of the mean if the interval excludes 0, else 0; None without an interval."""
        if self.interval is None:
            return None
        return (self.interval[0] > 0) - (self.interval[1] < 0)

    def text(self, digits: int = 4) -> str:
        """Return mean and interval, such as `-0.0120 (-0.0180 to -0.0060)`, or only the mean."""
        ends = self.interval
        limits = f" ({ends[0]:+.{digits}f} to {ends[1]:+.{digits}f})" if ends else ""
        return f"{self.mean:+.{digits}f}{limits}"


POWER = 0.8  # share of experiments that detect a real difference
CELLS = 1 << 20  # numbers in a block of resamples

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference in scores: the second set of runs minus the first. ``seed_variance`` is the
    variance of ``value`` over seeds alone, None for one seed. ``document_variance`` is its variance
    over documents alone, None for one document."""

    value: float
    by_seed: tuple[float, ...]
    documents: int
    seed_variance: float | None
    document_variance: float | None

    @property
    def interval(self) -> list[float] | None:
        """The 95 % interval of the difference; None for a single seed or document."""
        from scipy.special import stdtrit

        half = self._combined(lambda freedom: float(stdtrit(freedom, (1 + SHARE) / 2)))
        return None if half is None else [self.value - half, self.value + half]

    def detectable(self) -> float | None:
        """Return the smallest true difference that an experiment like this one would detect in 80 %
        of cases."""
        from scipy.special import nctdtrinc, stdtrit

        def shift(freedom: float) -> float:
            limit = stdtrit(freedom, (1 + SHARE) / 2)
            return float(nctdtrinc(freedom, 1 - POWER, limit))

        return self._combined(shift)

    def _combined(self, factor: Callable[[float], float]) -> float | None:
        count = len(self.by_seed)
        if self.seed_variance is None or self.document_variance is None or count < 2:
            return None
        of_seeds = factor(count - 1) ** 2 * self.seed_variance
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
    base: Floats,
    other: Floats,
    sizes: npt.NDArray[np.int64],
    strata: Any,
    *,
    seed: int,
    factor: float = 1 / math.log(2),
) -> Difference:
    """Return the difference of ``other`` from ``base``. Both are values of documents, such as nats:
    [seeds, documents]. Their sums are divided by the sum of ``sizes``, such as UTF-8 bytes, and
    multiplied by ``factor``, which by default turns nats into bits. ``strata`` has the number of
    each document's stratum (such as its source). Documents are resampled within their stratum. All
    strata with a single document become one stratum."""
    bits = (other - base) * factor
    seeds, documents = bits.shape
    total = max(float(sizes.sum()), 1e-300)
    by_seed = bits.sum(axis=1) / total
    seed_variance = document_variance = None
    if seeds > 1:
        seed_variance = float(np.var(by_seed, ddof=1)) / seeds
    if documents > 1:
        drawn, correction = resampled(bits, sizes, strata, seed)
        of_mean = float(np.var(drawn.mean(axis=1)))
        deviations = drawn - drawn.mean(axis=1, keepdims=True)
        shared = float(np.var(deviations, axis=0).sum()) / max(1, seeds - 1) / seeds
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
    """Return (bits per byte of documents drawn at random: [resamples, seeds], the factor that makes
    their variance over the resamples unbiased). ``bits``: [seeds, documents]. ``strata``: the
    number of each document's group, such as its source. Documents are drawn within their group."""
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
