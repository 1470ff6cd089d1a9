"""`str.lower()` on UTF-8 bytes, for keys under which passages are compared."""

from __future__ import annotations

import sys
from functools import lru_cache

import numpy as np
from numba import njit

from curate.text.unicode import char_bytes, code_point

# In a folding table: this character goes; for this one look at the text around it.
GONE, LOOK = -1, -2
_PLANES = (*range(0x30000), *range(0xE0000, 0xE0200))  # no other plane holds a cased letter


@lru_cache(maxsize=1)
def lower_table() -> np.ndarray:
    """int32[0x110000]: `chr(c).lower()` of every code point where that is one character whatever
    stands beside it, else LOOK: U+0130 becomes two, and a sigma depends on its place in a word."""
    table = np.arange(sys.maxunicode + 1, dtype=np.int32)
    for code in _PLANES:
        small = chr(code).lower()
        table[code] = ord(small) if len(small) == 1 else LOOK
    table[0x3A3] = LOOK
    return table


@njit(nogil=True, inline="always")
def put_code(out, n, code):
    """Writes a code point as UTF-8 to out[n:]; returns where it ends."""
    if code < 0x80:
        out[n] = code
        return n + 1
    if code < 0x800:
        out[n] = 0xC0 | (code >> 6)
        out[n + 1] = 0x80 | (code & 0x3F)
        return n + 2
    if code < 0x10000:
        out[n] = 0xE0 | (code >> 12)
        out[n + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[n + 2] = 0x80 | (code & 0x3F)
        return n + 3
    out[n] = 0xF0 | (code >> 18)
    out[n + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[n + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[n + 3] = 0x80 | (code & 0x3F)
    return n + 4


@njit(nogil=True)
def fold(data: np.ndarray, start: int, end: int, table: np.ndarray, out: np.ndarray) -> int:
    """Writes data[start:end] folded by a table to out; returns its bytes, or LOOK.

    out: uint8[2 * (end - start) or more], since a character of two bytes may become one of three.
    """
    n = 0
    i = start
    while i < end:
        b = data[i]
        code = np.int64(b)
        size = 1
        if b >= 0x80:
            code, size = np.int64(code_point(data, i, end)), char_bytes(b)
            if code < 0 or code > 0x10FFFF:  # not UTF-8: the byte as it is
                out[n] = b
                n += 1
                i += 1
                continue
        code = np.int64(table[code])
        if code == LOOK:
            return LOOK
        if code != GONE:
            n = put_code(out, n, code)
        i += size
    return n
