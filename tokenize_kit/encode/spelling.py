"""What is said of a character that no token spells: its bytes, or one token for a run of them."""

from __future__ import annotations

from collections import namedtuple

from tokenize_kit.encode.bytes8 import njit_bare

# unknown: the id of what has no token; bytes: int64[256]: ids of bytes, empty where characters do
# not fall back to them; joined: whether a run of unknown characters in a row is one id.
Fallback = namedtuple("Fallback", "unknown bytes joined")
_SPACE = 0x20


@njit_bare
def _width(byte):
    return 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


@njit_bare
def spell(fallback, data, place, ids, w):
    """Writes to ids[w:] what the character at data[place:] falls back to; returns the new length.

    A space stands for U+2581.
    """
    byte_ids = fallback.bytes
    if len(byte_ids) == 0:
        ids[w] = fallback.unknown
        return w + 1
    if data[place] == _SPACE:
        ids[w] = byte_ids[0xE2]
        ids[w + 1] = byte_ids[0x96]
        ids[w + 2] = byte_ids[0x81]
        return w + 3
    width = _width(data[place])
    for i in range(width):
        ids[w + i] = byte_ids[data[place + i]]
    return w + width


@njit_bare
def join_unknown(unknown, ids, first, w):
    """Makes every run of unknown ids in ids[first:w] one; returns the new length."""
    left = first
    for k in range(first, w):
        if ids[k] != unknown or left == first or ids[left - 1] != unknown:
            ids[left] = ids[k]
            left += 1
    return left
