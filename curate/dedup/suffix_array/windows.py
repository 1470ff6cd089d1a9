"""Windows: L symbols of a document from a place on. Where they end, and which are equal.

A text is a run of symbols of `width` bytes each: bytes (width 1), or tokens (2 or 4). A window is
L symbols, or, in `characters`, L UTF-8 characters of at least L bytes. Among windows of so many
characters none is the beginning of another, so in an order by bytes equal ones stand together.
All places are in symbols.
"""

from __future__ import annotations

import numpy as np

from curate.text.hashing import load8
from kernel_cache import njit

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


@njit(nogil=True, inline="always")
def continues(byte):
    """Whether a byte is inside of a UTF-8 character."""
    return (byte & 0xC0) == 0x80


@njit(nogil=True)
def starts_within(data, i, size):
    """Characters that start in data[i : i + size]."""
    inside = np.uint64(0)
    k = np.int64(0)
    while k + 8 <= size:
        x = load8(data, np.uint64(i + k))
        bits = (x >> np.uint64(7)) & (~x >> np.uint64(6)) & _ONES
        inside += (bits * _ONES) >> np.uint64(56)
        k += 8
    left = np.int64(inside)
    while k < size:
        left += continues(data[i + k])
        k += 1
    return size - left


@njit(nogil=True)
def window_end(data, i, window, chars, stop):
    """Where the window from i ends, in symbols; -1 where it does not end by `stop`.

    data: uint8[], of a text of bytes where chars, else anything.
    """
    if i + window > stop:
        return np.int64(-1)
    if not chars:
        return np.int64(i + window)
    left = window - starts_within(data, i, window)
    k = i + window
    while k < stop:
        if not continues(data[k]):
            if left == 0:
                return np.int64(k)
            left -= 1
        k += 1
    return np.int64(k) if left == 0 else np.int64(-1)


@njit(nogil=True)
def same_window(data, i, j, window, width, chars):
    """Whether the windows from i and j, both complete, are equal. data: uint8[], all bytes."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    if size >= 8:
        # Neighbours in an order share their beginnings, so the last bytes tell them apart.
        x = load8(data, np.uint64(a + size - 8))
        if x != load8(data, np.uint64(b + size - 8)):
            return False
        while k + 32 <= size:
            one = load8(data, np.uint64(a + k))
            two = load8(data, np.uint64(a + k + 8))
            three = load8(data, np.uint64(a + k + 16))
            four = load8(data, np.uint64(a + k + 24))
            other = (one ^ load8(data, np.uint64(b + k))) | (
                two ^ load8(data, np.uint64(b + k + 8))
            )
            other |= (three ^ load8(data, np.uint64(b + k + 16))) | (
                four ^ load8(data, np.uint64(b + k + 24))
            )
            if other != 0:
                return False
            x |= one | two | three | four
            k += 32
        while k + 8 < size:
            one = load8(data, np.uint64(a + k))
            if one != load8(data, np.uint64(b + k)):
                return False
            x |= one
            k += 8
        if x & _HIGH == 0:  # every byte is a character
            return True
    else:
        while k < size:
            if data[a + k] != data[b + k]:
                return False
            k += 1
    if not chars:
        return True
    left = window - starts_within(data, a, size)
    k = size
    while a + k < len(data) and b + k < len(data):
        if not continues(data[a + k]):
            if left == 0:
                return True
            left -= 1
        if data[a + k] != data[b + k]:
            return False
        k += 1
    return left == 0


@njit(nogil=True)
def order_of(data, i, j, window, width, chars):
    """-1, 0 or 1 as the window from i stands before, with or after the one from j, by bytes."""
    size = window * width
    a, b = i * width, j * width
    k = np.int64(0)
    while k + 8 <= size:
        if load8(data, np.uint64(a + k)) != load8(data, np.uint64(b + k)):
            break
        k += 8
    left = np.int64(-1)
    while a + k < len(data) and b + k < len(data):
        if k >= size:
            if not chars:
                return 0
            if left < 0:
                left = window - starts_within(data, a, k)
            if not continues(data[a + k]):
                if left == 0:
                    return 0
                left -= 1
        if data[a + k] != data[b + k]:
            return -1 if data[a + k] < data[b + k] else 1
        k += 1
    return 0
