"""The discounts of modified Kneser-Ney smoothing from counts of counts.

Chen and Goodman 1998, equation 26: with n_k the n-grams of adjusted count k and
Y = n_1 / (n_1 + 2 n_2), D_k = k - (k + 1) Y n_{k+1} / n_k for k = 1, 2, 3; D_3 holds for all larger
counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from curate.errors import RunFailed

Discounts = tuple[float, float, float]
# What `lmplz --discount_fallback` takes where a corpus gives none.
FALLBACK: Discounts = (0.5, 1.0, 1.5)


def discounts(counts: Sequence[int], order: int, fallback: bool = False) -> Discounts:
    """(D1, D2, D3+) of one order from counts: the n-grams of adjusted count 1, 2, 3 and 4.

    Where they cannot be computed, or lie outside 0 <= D_k <= k: FALLBACK, or RunFailed.
    """
    why = ""
    found = []
    for k in (1, 2, 3):
        if counts[k - 1] == 0:
            why = f"no {order}-gram has the adjusted count {k}"
            break
        y = counts[0] / (counts[0] + 2 * counts[1])
        found.append(k - (k + 1) * y * counts[k] / counts[k - 1])
        if not 0 <= found[-1] <= k:
            why = f"the discount of {order}-grams with adjusted count {k} would be {found[-1]:.3g}"
            break
    if not why:
        return found[0], found[1], found[2]
    if fallback:
        return FALLBACK
    raise RunFailed(
        f"no Kneser-Ney discounts: {why}; the corpus is too small or repeats itself: give more"
        " text, a lower --order, or --discount-fallback"
    )
