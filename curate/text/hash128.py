"""128-bit hashes of bytes, for keys that a whole corpus shares.

MurmurHash3_x64_128 with seed 0 (A. Appleby, public domain). Kernels need a hash that they can
compute themselves; xxh3-128, which whole documents are compared by, comes from C. Both have 128
bits: among 10^12 different keys the odds that any two are taken for one are about
10^24 / 2^129, or 1.5e-15. Neither resists texts that are made to collide.
"""

from __future__ import annotations

import numpy as np

from curate.text.hashing import load8, load_few, mix
from kernel_cache import njit

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_FIVE = np.uint64(5)
_8, _16 = np.uint64(8), np.uint64(16)


@njit(nogil=True, inline="always")
def _rotate(value, left):
    return (value << np.uint64(left)) | (value >> np.uint64(64 - left))


@njit(nogil=True)
def hash128(data: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """(first, second: uint64) of data[start:end], data: uint8[]."""
    one, two = np.uint64(0), np.uint64(0)
    i, stop = np.uint64(start), np.uint64(end)
    size = stop - i
    while i + _16 <= stop:
        one ^= _rotate(load8(data, i) * _C1, 31) * _C2
        one = (_rotate(one, 27) + two) * _FIVE + _N1
        two ^= _rotate(load8(data, i + _8) * _C2, 33) * _C1
        two = (_rotate(two, 31) + one) * _FIVE + _N2
        i += _16
    left = stop - i
    if left > _8:
        two ^= _rotate(load_few(data, i + _8, left - _8) * _C2, 33) * _C1
        one ^= _rotate(load8(data, i) * _C1, 31) * _C2
    elif left == _8:
        one ^= _rotate(load8(data, i) * _C1, 31) * _C2
    elif left:
        one ^= _rotate(load_few(data, i, left) * _C1, 31) * _C2
    one ^= size
    two ^= size
    one += two
    two += one
    one, two = mix(one), mix(two)
    one += two
    return one, two + one
