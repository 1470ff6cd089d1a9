"""Signatures of b bits a permutation (Li and König 2010), and the similarity estimated from them.

Of every value of a signature b bits of its hash are kept. Two documents of Jaccard similarity s
agree in a value with probability 2^-b + (1 - 2^-b) s: they agree where the minima are the same, and
by chance elsewhere. (That is the paper's theorem 1 for sets that are small beside the 2^32 hashes,
C1 = C2 = 2^-b.) With a share p of k values equal the estimate is (p - 2^-b) / (1 - 2^-b), whose
standard error is sqrt(P (1 - P) / k) / (1 - 2^-b) with P the probability above.

The bits are those of a hash of the value and of its place in the signature. The low bits of the
value itself would not do: of an affine permutation they depend on the low bits of the shingle
alone, so that two shingles that agree in them would do so in all permutations.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit

_PLACE = np.uint32(0x9E3779B1)


@njit(nogil=True, inline="always")
def fmix32(h):
    """MurmurHash3's 32-bit finaliser."""
    h ^= h >> np.uint32(16)
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h ^= h >> np.uint32(13)
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16)))


def packed_bytes(values: int, bits: int) -> int:
    """Bytes of a signature of so many values."""
    return -(-values * bits // 8)


@njit(cache=True, nogil=True)
def pack(signature, bits):
    """uint8[rows, packed_bytes(values, bits)] of a signature: uint32[rows, values]; value p has the
    bits from p * bits on, the lowest first."""
    rows, values = signature.shape
    out = np.zeros((rows, (values * bits + 7) // 8), np.uint8)
    for r in range(rows):
        held, count, at = np.uint64(0), 0, 0
        for p in range(values):
            kept = fmix32(np.uint32(signature[r, p] + np.uint32(p) * _PLACE))
            held |= np.uint64(kept >> np.uint32(32 - bits)) << np.uint64(count)
            count += bits
            while count >= 8:
                out[r, at] = held & np.uint64(255)
                held >>= np.uint64(8)
                at += 1
                count -= 8
        if count:
            out[r, at] = held & np.uint64(255)
    return out


@njit(nogil=True)
def equal_values(x, y, values, bits):
    """In how many of `values` two packed signatures agree."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    held, count, at, equal = np.uint64(0), 0, 0, 0
    for _ in range(values):
        while count < bits:
            held |= np.uint64(x[at] ^ y[at]) << np.uint64(count)
            at += 1
            count += 8
        if held & mask == 0:
            equal += 1
        held >>= np.uint64(bits)
        count -= bits
    return equal


@njit(nogil=True)
def estimated(equal, values, bits):
    """The Jaccard similarity that so many equal values of b bits stand for, within 0 and 1."""
    chance = 2.0**-bits
    return min(1.0, max(0.0, (equal / values - chance) / (1.0 - chance)))


def standard_error(similarity: float, values: int, bits: int) -> float:
    """Of the estimate, for documents of that Jaccard similarity."""
    chance = 2.0**-bits
    equal = chance + (1.0 - chance) * similarity
    return float((equal * (1.0 - equal) / values) ** 0.5 / (1.0 - chance))
