"""Shares of sources as exact numbers: weights between bounds, and whole quotas out of them.

All of it is in fractions, and ties go by name: no order of arrival and no rounding of sums decides.
train/data/mixing.py halves a list to know, without state, what the first n rows of a run hold;
here the whole is known, so the largest remainders get what rounding down leaves (Hamilton's way,
every quota within 1 of its share, for any number of sources).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from fractions import Fraction

Exact = Mapping[str, Fraction]
Whole = Mapping[str, int]


def quotas(shares: Mapping[str, Fraction | int], total: int) -> dict[str, int]:
    """`total` in whole numbers by shares (not all 0): the sum is `total`, each is its share of it
    rounded down or up."""
    whole = Fraction(sum(shares.values()))
    exact = {name: share * total / whole for name, share in shares.items()}
    found = {name: int(value) for name, value in exact.items()}
    left = total - sum(found.values())
    for name in sorted(exact, key=lambda name: (found[name] - exact[name], name))[:left]:
        found[name] += 1
    return found


def tempered(sizes: Whole, alpha: float) -> dict[str, Fraction]:
    """Weights of size ** alpha: 1 is proportional, 0 uniform; mT5 (Xue et al. 2021) and XLM-R
    (Conneau et al. 2020) take 0.3. A source of size 0 gets 0."""
    largest = max(sizes.values(), default=0)
    return {
        name: Fraction((size / largest) ** alpha) if size else Fraction(0)
        for name, size in sizes.items()
    }


def clamped(
    weights: Mapping[str, Fraction], total: Fraction, low: Exact, high: Exact
) -> dict[str, Fraction]:
    """Amounts in proportion to the weights wherever bounds allow, adding up to `total`.

    Each is scale * weight, raised to its low and cut to its high (absent: none), with the one
    scale at which they add up. Where no scale does, the amounts at the nearest end: all lows, or
    all highs; the caller compares the sum. With equal weights and high = cap * size this is UniMax
    (Chung et al. 2023, algorithm 1).
    """

    def at(scale: Fraction | None) -> dict[str, Fraction]:
        found = {}
        for name, weight in weights.items():
            floor = low.get(name, Fraction(0))
            if scale is None:  # beyond the last bound
                value = high[name] if weight and name in high else floor
            else:
                value = max(scale * weight, floor)
                value = min(value, high[name]) if name in high else value
            found[name] = value
        return found

    def add(scale: Fraction) -> Fraction:
        return Fraction(sum(at(scale).values()))

    bends = sorted(
        {bound[n] / w for bound in (low, high) for n, w in weights.items() if w and n in bound}
    )
    above = bisect_left(bends, total, key=add)
    if total <= add(Fraction(0)):
        return at(Fraction(0))
    before = bends[above - 1] if above else Fraction(0)
    base = add(before)
    if above < len(bends):
        after = bends[above]
        slope = (add(after) - base) / (after - before) if after > before else Fraction(0)
    else:
        slope = add(before + 1) - base  # a line from here on
    if slope == 0:
        return at(before) if base == total else at(None)
    return at(before + (total - base) / slope)
