"""Hashes in kernels for keys compared across a corpus: 128 bits for bytes, 64 for a number.

The 128-bit hash is MurmurHash3_x64_128 with seed 0 (A. Appleby, public domain); whole documents are
compared by xxh3-128, which is implemented in C. Among 10^12 different keys the odds that any two
have the same 128 bits are about 10^24 / 2^129, or 1.5e-15. The hash does not resist texts made to
collide. For tables within a batch, base.kernels.intrinsics has a faster hash, never stored.
"""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8, load_few


@njit(nogil=True)
def mix(value):
    """Return `value` with its bits mixed by Murmur3's 64-bit finaliser: each bit affects all."""
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_8, _16 = np.uint64(8), np.uint64(16)


@njit(nogil=True, inline="always")
def _rotate(value, bits):
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit(nogil=True)
def hash128(data: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """Return the hash (first, second: uint64) of data[start:end], data: uint8[]."""
    first, second = np.uint64(0), np.uint64(0)
    i, stop = np.uint64(start), np.uint64(end)
    size = stop - i
    while i + _16 <= stop:
        first ^= _rotate(load8(data, i) * _C1, 31) * _C2
        first = (_rotate(first, 27) + second) * _FIVE + _N1
        second ^= _rotate(load8(data, i + _8) * _C2, 33) * _C1
        second = (_rotate(second, 31) + first) * _FIVE + _N2
        i += _16
    tail = stop - i
    if tail > _8:
        second ^= _rotate(load_few(data, i + _8, tail - _8) * _C2, 33) * _C1
        first ^= _rotate(load8(data, i) * _C1, 31) * _C2
    elif tail == _8:
        first ^= _rotate(load8(data, i) * _C1, 31) * _C2
    elif tail:
        first ^= _rotate(load_few(data, i, tail) * _C1, 31) * _C2
    first ^= size
    second ^= size
    first += second
    second += first
    first, second = mix(first), mix(second)
    first += second
    return first, second + first
