"""Positions of flagged bytes, eight at a time, without a branch that depends on where they are.

What numba's loops over bytes cost is mostly the branch at each boundary that cannot be predicted.
Here flags are computed in loops that the compiler turns into vector instructions, and eight of
them at once become an entry of a table of positions.
"""

from __future__ import annotations

import numpy as np

from curate.text.hashing import load8
from kernel_cache import njit

PADDING = 8  # bytes behind the flags that are read and must be 0; entries of `out` to spare

# Eight bytes of 0 or 1 times this number have them as the upper eight bits.
_GATHER = np.uint64(0x0102040810204080)
_SHIFT = np.uint64(56)
_EIGHT = np.uint64(8)
_PLACES = np.zeros((256, 8), np.uint8)
_COUNTS = np.zeros(256, np.uint64)
for _mask in range(256):
    _set = [k for k in range(8) if _mask >> k & 1]
    _PLACES[_mask, : len(_set)] = _set
    _COUNTS[_mask] = len(_set)


@njit(nogil=True)
def count_flags(flags):
    """How many of flags: uint8[n], each 0 or 1, are set."""
    n = np.int64(0)
    for f in flags:
        n += f
    return n


@njit(nogil=True)
def flag_positions(flags, n, base, out):
    """Writes base + the positions of the flags that are set into out: int64[set + PADDING], and
    returns their number. flags: uint8[n + PADDING], each 0 or 1, 0 from n on."""
    count = np.uint64(0)
    i, stop = np.uint64(0), np.uint64(n)
    while i < stop:
        eight = load8(flags, i)
        if eight != 0:
            mask = (eight * _GATHER) >> _SHIFT
            for k in range(np.uint64(8)):
                out[count + k] = base + np.int64(i) + _PLACES[mask, k]
            count += _COUNTS[mask]
        i += _EIGHT
    return np.int64(count)
