"""Loads of eight bytes at once, and a 64-bit hash of bytes."""

from __future__ import annotations

import numpy as np

from kernel_cache.intrinsics import njit_bare, njit_within

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


@njit_within
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


@njit_bare
def load_few(data, i, n):
    """The n < 8 bytes from i as `load8` places them."""
    value = np.uint64(0)
    for k in range(n):
        value |= np.uint64(data[i + np.uint64(k)]) << np.uint64(8 * k)
    return value


@njit_within
def mix(value):
    """A round of mixing that moves every bit of the value."""
    value *= _K1
    value ^= value >> _SHIFT
    value *= _K2
    return value ^ (value >> _SHIFT)


@njit_bare
def hash_bytes(data, start, end):
    """A 64-bit hash of data[start:end]; equal bytes, equal hash."""
    value = np.uint64(end - start)
    i, stop = np.uint64(start), np.uint64(end)
    while i + np.uint64(8) <= stop:
        value = mix(value ^ load8(data, i))
        i += np.uint64(8)
    if i < stop:
        value = mix(value ^ load_few(data, i, stop - i))
    return mix(value)
