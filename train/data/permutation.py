"""Random orders that are computed, not stored: entry k of an order of n in constant time."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

_ROUNDS = 6
_U64 = npt.NDArray[np.uint64]


def key_of(*parts: int | str) -> int:
    """64 bits that stand for these parts."""
    text = " ".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def scatter(x: _U64) -> _U64:
    """SplitMix64's finaliser (Steele et al. 2014): a bijection that scatters its argument."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permuted(entries: npt.NDArray[np.int64], count: int, key: int) -> npt.NDArray[np.int64]:
    """Where these entries of 0 .. count - 1 lie in the order called ``key``.

    A Feistel network over an even number of bits, walked along until it is back among the first
    ``count`` numbers (Black and Rogaway 2002); the domain is at most four times as large, so that
    takes few turns.
    """
    half = max(2, ((count - 1).bit_length() + 1) // 2)
    mask, bits = np.uint64((1 << half) - 1), np.uint64(half)
    keys = scatter(np.arange(_ROUNDS, dtype=np.uint64) + np.uint64(key))
    positions = entries.astype(np.uint64)
    outside = np.ones(len(positions), dtype=bool)
    while outside.any():
        high, right = positions[outside] >> bits, positions[outside] & mask
        for turn in keys:
            high, right = right, high ^ (scatter(right + turn) & mask)
        positions[outside] = high << bits | right
        outside = positions >= count
    return positions.astype(np.int64)
