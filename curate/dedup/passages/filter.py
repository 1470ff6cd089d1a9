"""Passages that may stand more than once, found in bounded memory, before anything is compared.

Most passages of a corpus stand once. Two bits for each slot that a key may fall into say whether
none, one or several did; those whose slot was hit once leave here, and the others go on to an exact
comparison. A slot can be shared by chance, never missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

# Slots a passage: with 16, one of 17 passages that stand once goes on.
SLOTS = 16
SMALLEST, LARGEST = 1 << 16, 1 << 30  # 16 KiB and 256 MiB; behind that more go on

_ONE, _THREE = np.uint64(1), np.uint64(3)
_FIVE, _31 = np.uint64(5), np.uint64(31)


@njit(cache=True, nogil=True)
def _add(keys, slots):
    mask = np.uint64(len(slots) * 32 - 1)
    for k in range(len(keys)):
        slot = keys[k, 1] & mask
        shift = (slot & _31) << _ONE
        at = slot >> _FIVE
        held = (slots[at] >> shift) & _THREE
        if held == 0:
            slots[at] |= _ONE << shift
        elif held == 1:
            slots[at] |= _THREE << shift


@njit(cache=True, nogil=True)
def _shared(keys, slots):
    """int64[]: the passages whose slot was hit more than once."""
    mask = np.uint64(len(slots) * 32 - 1)
    out = np.empty(len(keys), np.int64)
    n = 0
    for k in range(len(keys)):
        slot = keys[k, 1] & mask
        held = (slots[slot >> _FIVE] >> ((slot & _31) << _ONE)) & _THREE
        out[n] = k
        n += held == _THREE
    return out[:n].copy()


@dataclass(frozen=True)
class Filter:
    """slots: uint64[], two bits a slot."""

    slots: np.ndarray

    @classmethod
    def of(cls, passages: int) -> Filter:
        """An empty one for so many passages."""
        slots = min(max(1 << (SLOTS * passages).bit_length(), SMALLEST), LARGEST)
        return cls(np.zeros(slots // 32, np.uint64))

    def add(self, keys: np.ndarray) -> None:
        """Counts keys: uint64[passages, 2]."""
        _add(keys, self.slots)

    def shared(self, keys: np.ndarray) -> np.ndarray:
        """int64[]: which of the keys stand more than once among those added, and a few more."""
        return _shared(keys, self.slots)
