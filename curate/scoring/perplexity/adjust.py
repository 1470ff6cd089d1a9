"""Adjusted counts of all orders from the counted N-grams, in one pass in suffix order.

Heafield et al. 2013, section 3.2: an n-gram's adjusted count is its count where it has the highest
order or begins with <s>, else the number of different words before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.scoring.perplexity.keys import BOS, shift_right
from curate.scoring.perplexity.runs import mapped
from kernel_cache import njit

_FILES = (("hi", "u8"), ("lo", "u8"), ("count", "i8"), ("pruned", "u1"))


@dataclass(frozen=True)
class Order:
    """The n-grams of one order in suffix order: hi, lo: uint64[n], keys; count: int64[n],
    adjusted; pruned: uint8[n], 1 where it is left out of the model."""

    n: int
    hi: np.ndarray
    lo: np.ndarray
    count: np.ndarray
    pruned: np.ndarray


@njit(nogil=True)
def _effective(hi, lo, order, bits):
    """The order of the n-gram without all but one <s> at its beginning."""
    width = np.uint64(bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    n = order
    ahi, alo = shift_right(hi, lo, width)  # its second word
    while n > 1 and (alo & mask) == np.uint64(BOS):
        n -= 1
        ahi, alo = shift_right(ahi, alo, width)
    return n


@njit(nogil=True)
def _shared(ahi, alo, bhi, blo, order, bits):
    """How many last words two keys share."""
    n = order
    while n > 0:
        xhi, xlo = shift_right(ahi, alo, np.uint64((order - n) * bits))
        yhi, ylo = shift_right(bhi, blo, np.uint64((order - n) * bits))
        if xhi == yhi and xlo == ylo:
            return n
        n -= 1
    return 0


@njit(nogil=True)
def _unknown(hi, lo, n, bits):
    """Whether one of the n words is <unk>, whose number is 0."""
    width = np.uint64(bits)
    mask = (np.uint64(1) << width) - np.uint64(1)
    for _ in range(n):
        if lo & mask == 0:
            return True
        hi, lo = shift_right(hi, lo, width)
    return False


@njit(cache=True, nogil=True)
def order_sizes(hi, lo, order, bits):
    """int64[order + 1]: the different n-grams of each order."""
    sizes = np.zeros(order + 1, np.int64)
    for j in range(len(hi)):
        e = _effective(hi[j], lo[j], order, bits)
        same = _shared(hi[j - 1], lo[j - 1], hi[j], lo[j], order, bits) if j else 0
        for n in range(same + 1, e + 1):
            sizes[n] += 1
    return sizes


@njit(cache=True, nogil=True)
def adjust_order(hi, lo, count, order, bits, n, least, outh, outl, outc, pruned):
    """Fills in the n-grams of order n: keys, adjusted counts, and whether they are left out: the
    plain count is at most `least`, or one of the words is <unk>. Words that are known to be rare
    would else make a text of unknown ones an expected one."""
    k = -1
    plain = 0
    for j in range(len(hi)):
        e = _effective(hi[j], lo[j], order, bits)
        if e < n:
            continue
        same = _shared(hi[j - 1], lo[j - 1], hi[j], lo[j], order, bits) if j else 0
        if same < n:
            if k >= 0:
                pruned[k] = plain <= least or _unknown(outh[k], outl[k], n, bits)
            k += 1
            shift = np.uint64((order - n) * bits)
            outh[k], outl[k] = shift_right(hi[j], lo[j], shift)
            outc[k] = 0
            plain = 0
        plain += count[j]
        if e == n:  # of the highest order, or <s> is its first word
            outc[k] += count[j]
        elif same < n + 1:  # another word before it
            outc[k] += 1
    if k >= 0:
        pruned[k] = plain <= least or _unknown(outh[k], outl[k], n, bits)


def adjusted(
    folder: Path,
    hi: np.ndarray,
    lo: np.ndarray,
    count: np.ndarray,
    order: int,
    bits: int,
    prune: Sequence[int],
) -> list[Order]:
    """Orders 1 to `order` from the N-grams (hi, lo: uint64[n] in suffix order; count: int64[n]).

    prune: the largest count that is left out, for each order. Files lie in the folder.
    """
    sizes = order_sizes(hi, lo, order, bits)
    found = []
    for n in range(1, order + 1):
        rows = int(sizes[n])
        arrays = [mapped(folder / f"order{n}.{c}", rows, d) for c, d in _FILES]
        adjust_order(hi, lo, count, order, bits, n, prune[n - 1], *arrays)
        found.append(Order(n, *arrays))
    return found


@njit(cache=True, nogil=True)
def counts_of_counts(count):
    """int64[4]: how many n-grams have the adjusted count 1, 2, 3 and 4."""
    found = np.zeros(4, np.int64)
    for c in count:
        if 1 <= c <= 4:
            found[c - 1] += 1
    return found
