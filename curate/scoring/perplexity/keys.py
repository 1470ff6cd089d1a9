"""n-grams as numbers of 128 bits in (hi, lo): uint64, the last word highest, so that their order is
the suffix order of Heafield et al. 2013: n-grams with a common suffix stand together.

With B bits a word, the n-gram of the last n words of an N-gram is its key >> (N - n)B.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit

BITS = 128
BOS = 1  # the id of <s>
_64 = np.uint64(64)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_DIGIT = 11  # bits that a pass of the sort looks at


@njit(nogil=True, inline="always")
def shift_right(hi, lo, k):
    """(hi, lo) >> k; k: uint64 below 128."""
    if k == 0:
        return hi, lo
    if k >= _64:
        return np.uint64(0), hi >> (k - _64) if k < np.uint64(128) else np.uint64(0)
    return hi >> k, (lo >> k) | (hi << (_64 - k))


@njit(nogil=True, inline="always")
def shift_left(hi, lo, k):
    """(hi, lo) << k; k: uint64 below 128."""
    if k == 0:
        return hi, lo
    if k >= _64:
        return lo << (k - _64) if k < np.uint64(128) else np.uint64(0), np.uint64(0)
    return (hi << k) | (lo >> (_64 - k)), lo << k


@njit(nogil=True, inline="always")
def low_bits(hi, lo, k):
    """The k lowest bits of (hi, lo)."""
    if k >= _64:
        if k == _64:
            return np.uint64(0), lo
        return hi & (_ALL >> (np.uint64(128) - k)), lo
    return np.uint64(0), lo & ((_ONE << k) - _ONE)


@njit(nogil=True, inline="always")
def less(ahi, alo, bhi, blo):
    """Whether key a stands before key b."""
    return ahi < bhi or (ahi == bhi and alo < blo)


@njit(cache=True, nogil=True)
def ngram_keys(ids, ends, order, bits):
    """(hi, lo) of the n-gram that ends at each word and at the </s> (id 2) of each sentence.

    ids: uint32[words]; ends: int64[sentences], where each sentence ends. Beginnings are filled up
    with <s>.
    """
    n = len(ids) + len(ends)
    hi, lo = np.empty(n, np.uint64), np.empty(n, np.uint64)
    width, top = np.uint64(bits), np.uint64((order - 1) * bits)
    bhi, blo = np.uint64(0), np.uint64(0)
    for _ in range(order):
        bhi, blo = shift_left(bhi, blo, width)
        blo |= np.uint64(BOS)
    k = begin = 0
    for s in range(len(ends)):
        ahi, alo = bhi, blo
        for i in range(begin, ends[s] + 1):
            word = np.uint64(ids[i]) if i < ends[s] else np.uint64(2)
            whi, wlo = shift_left(np.uint64(0), word, top)
            ahi, alo = shift_right(ahi, alo, width)
            ahi |= whi
            alo |= wlo
            hi[k], lo[k] = ahi, alo
            k += 1
        begin = ends[s]
    return hi, lo


@njit(cache=True, nogil=True)
def context_keys(hi, lo, order, bits):
    """The keys that sort n-grams of that order by context, then by last word: the last word moves
    to the lowest place, and the context before it stands as the key of an (n-1)-gram."""
    outh, outl = np.empty_like(hi), np.empty_like(lo)
    width, rest = np.uint64(bits), np.uint64((order - 1) * bits)
    for i in range(len(hi)):
        _, word = shift_right(hi[i], lo[i], rest)
        chi, clo = low_bits(hi[i], lo[i], rest)
        chi, clo = shift_left(chi, clo, width)
        outh[i], outl[i] = chi, clo | word
    return outh, outl


@njit(cache=True, nogil=True)
def words_of(hi, lo, order, bits):
    """uint32[n, order]: the words of each n-gram, the first word first."""
    out = np.empty((len(hi), order), np.uint32)
    width = np.uint64(bits)
    mask = (_ONE << width) - _ONE
    for i in range(len(hi)):
        ahi, alo = hi[i], lo[i]
        for k in range(order):
            out[i, k] = alo & mask
            ahi, alo = shift_right(ahi, alo, width)
    return out


@njit(cache=True, nogil=True)
def sort_order(hi, lo, bits):
    """int64[n]: the stable order of keys of so many bits; a radix sort, lowest digits first."""
    n = len(hi)
    order, other = np.arange(n), np.empty(n, np.int64)
    shi, slo = hi.copy(), lo.copy()
    thi, tlo = np.empty_like(hi), np.empty_like(lo)
    counts = np.empty((1 << _DIGIT) + 1, np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    for first in range(0, bits, _DIGIT):
        counts[:] = 0
        shift = np.uint64(first)
        for i in range(n):
            _, low = shift_right(shi[i], slo[i], shift)
            counts[np.int64(low & mask) + 1] += 1
        for k in range(1 << _DIGIT):
            counts[k + 1] += counts[k]
        for i in range(n):
            _, low = shift_right(shi[i], slo[i], shift)
            d = np.int64(low & mask)
            at = counts[d]
            counts[d] = at + 1
            thi[at], tlo[at], other[at] = shi[i], slo[i], order[i]
        shi, thi = thi, shi
        slo, tlo = tlo, slo
        order, other = other, order
    return order
