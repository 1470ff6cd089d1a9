"""Words that were met, asked for: what all encoders do with the memory of words.py.

Arrays come one by one: to take one out of a tuple counts a reference, at every word a cost.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokenize_kit.bytes8 import stir
from tokenize_kit.encode.words import INLINE, SLOTS, Cache, new_cache, same_bytes

_32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class Memories:
    """Memories of words for threads that share an encoder: each takes one while it encodes."""

    def __init__(self) -> None:
        self._idle = [new_cache()]

    def take(self) -> Cache:
        """One that no other thread has."""
        try:
            return self._idle.pop()
        except IndexError:
            return new_cache()

    def give(self, memory: Cache) -> None:
        """Takes it back."""
        self._idle.append(memory)


@njit(nogil=True)
def look_up(entries, letters, low, high, data, a, z):
    """The slot of the word of data[a:z], found by `low` and `high`, or the one that it would take:
    free, where its second number is 0."""
    mask = np.uint64(SLOTS - 1)
    slot = stir(low ^ (high * np.uint64(0x9E3779B97F4A7C15))) & mask
    while entries[slot, 1] != 0:
        if entries[slot, 0] == low and entries[slot, 1] == high:
            if z - a <= INLINE:
                break
            if same_bytes(letters, np.int64(entries[slot, 2] >> _32), data, a, z - a):
                break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(nogil=True, inline="always")
def recall(entries, ids, slot, size, out, w):
    """Writes to out[w:] the ids of a known word of `size` bytes; returns the new length."""
    n = np.int64(entries[slot, 3] & _LOW)
    if n <= 2 and size <= INLINE:
        out[w] = np.uint32(entries[slot, 2] & _LOW)
        if n == 2:
            out[w + 1] = np.uint32(entries[slot, 2] >> _32)
    else:
        first = np.int64(entries[slot, 2] & _LOW)
        for k in range(n):
            out[w + k] = ids[first + k]
    return w + n
