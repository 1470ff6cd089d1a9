"""What is said of a character that no token spells: its bytes, or one token for a run of them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from tokenize_kit.bare import njit_bare

# unknown: the id of what has no token; bytes: int64[256]: ids of bytes, empty where characters do
# not fall back to them; joined: whether a run of unknown characters in a row is one id.
Fallback = namedtuple("Fallback", "unknown bytes joined")
_SPACE = 0x20


@njit_bare
def _width(byte):
    return 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


@njit_bare
def spell(fallback, path, ends, first, last, data, a, ids, w):
    """Writes to ids[w:] path[first:last], -1 of it as what it falls back to; returns the new
    length.

    path, ends: tokens, and the characters of data[a:] they end at. A space stands for U+2581.
    """
    byte_ids = fallback.bytes
    place, seen = np.int64(a), 0
    for k in range(first, last):
        token = np.int64(path[k])
        if token >= 0:
            ids[w] = token
            w += 1
            continue
        if len(byte_ids) == 0:
            ids[w] = fallback.unknown
            w += 1
            continue
        while seen < np.int64(ends[k]) - 1:
            place += _width(data[place])
            seen += 1
        if data[place] == _SPACE:
            ids[w] = byte_ids[0xE2]
            ids[w + 1] = byte_ids[0x96]
            ids[w + 2] = byte_ids[0x81]
            w += 3
            continue
        for i in range(_width(data[place])):
            ids[w] = byte_ids[data[place + i]]
            w += 1
    return w


@njit_bare
def join_unknown(unknown, ids, first, w):
    """Makes every run of unknown ids in ids[first:w] one; returns the new length."""
    left = first
    for k in range(first, w):
        if ids[k] != unknown or left == first or ids[left - 1] != unknown:
            ids[left] = ids[k]
            left += 1
    return left
