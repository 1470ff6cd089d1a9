"""Hashes of bytes in kernels: 64 bits for tables within a batch, 128 bits for a whole corpus.

The 64-bit hash is fast and is never stored. The 128-bit hash is MurmurHash3_x64_128 with seed 0
(A. Appleby, public domain), for keys that a whole corpus shares; whole documents are compared by
xxh3-128, which comes from C. Among 10^12 different keys the odds that any two have the same 128
bits are about 10^24 / 2^129, or 1.5e-15. None of them resists texts that are made to collide.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


@njit(nogil=True, inline="always")
def load8(data, i):
    """Eight bytes from i (uint64), the first one lowest; the compiler makes it one load."""
    return (
        np.uint64(data[i])
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[i + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[i + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[i + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[i + np.uint64(7)]) << np.uint64(56))
    )


@njit(nogil=True, inline="always")
def load_few(data, i, n):
    """The n < 8 bytes from i as `load8` places them."""
    value = np.uint64(0)
    for k in range(n):
        value |= np.uint64(data[i + np.uint64(k)]) << np.uint64(8 * k)
    return value


@njit(nogil=True, inline="always")
def stir(value):
    """One round that moves every bit of the value."""
    value *= _K1
    value ^= value >> _SHIFT
    value *= _K2
    return value ^ (value >> _SHIFT)


@njit(nogil=True)
def mix(value):
    """Murmur3's 64-bit finaliser: every bit of the input moves every bit of the output."""
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@njit(nogil=True)
def hash_bytes(data, start, end):
    """A 64-bit hash of data[start:end]; equal bytes, equal hash."""
    value = np.uint64(end - start)
    i, stop = np.uint64(start), np.uint64(end)
    while i + np.uint64(8) <= stop:
        value = stir(value ^ load8(data, i))
        i += np.uint64(8)
    if i < stop:
        value = stir(value ^ load_few(data, i, stop - i))
    return stir(value)


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
    """(first, second: uint64) of data[start:end], data: uint8[]."""
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
