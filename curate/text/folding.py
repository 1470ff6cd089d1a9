"""Folding of UTF-8 bytes, for keys under which passages are compared: `str.lower()` and CCNet's.

Eight ASCII bytes are folded at once, as one number; what is not ASCII goes by a table.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from curate.text.unicode import char_bytes, code_point
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import load8

# In a folding table: this character goes; for this one look at the text around it.
GONE, LOOK = -1, -2
# The keys of UNICODE_PUNCT in CCNet's cc_net/text_normalizer.py.
CCNET_PUNCTUATION = "，。、„”“«»１」「《》´∶：？！（）；–—．～’…━〈〉【】％►"
CCNET_CONTROLS = (*range(32), *range(127, 160))
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


@lru_cache(maxsize=1)
def ccnet_table() -> np.ndarray:
    """int32[0x110000]: lower case, then digits (Nd) as 0, then CCNet's punctuation and control
    characters GONE. Source: normalize_for_dedup in cc_net/text_normalizer.py."""
    table = lower_table().copy()
    for code in range(0x20000):  # no digit lies beyond, and lower() makes none
        if unicodedata.category(chr(code)) == "Nd":
            table[code] = 48
    gone = [ord(c) for c in CCNET_PUNCTUATION if unicodedata.category(c) != "Nd"]
    table[[*gone, *CCNET_CONTROLS]] = GONE
    return table


_DIGIT = re.compile(r"\d")
_GOES = re.compile(f"[{CCNET_PUNCTUATION}{''.join(map(chr, CCNET_CONTROLS))}]")


def ccnet_normal(line: str) -> str:
    """CCNet's normal form of a line (normalize_for_dedup): stripped, in lower case, every digit a
    0, without its 34 punctuation characters and control characters."""
    return _GOES.sub("", _DIGIT.sub("0", line.strip().lower()))


class Folding(NamedTuple):
    """table: int32[0x110000], a code point for each, GONE or LOOK; zeros: whether digits become 0;
    floor: ASCII bytes from here on, save 127 where it is not 0, are not GONE."""

    table: np.ndarray
    floor: int
    zeros: bool


def folding(table: np.ndarray) -> Folding:
    """The folding of a table that folds ASCII as `str.lower()` does, with digits as 0 or not, with
    control characters or without; other tables are folded character by character."""
    ascii_codes = table[:128].tolist()
    for zeros in (False, True):
        for floor in (0, 32):
            expected = [48 if zeros and 48 <= c < 58 else ord(chr(c).lower()) for c in range(128)]
            if floor:
                expected[:floor], expected[127] = [GONE] * floor, GONE
            if expected == ascii_codes:
                return Folding(table, floor, zeros)
    return Folding(table, 128, False)


@lru_cache(maxsize=1)
def lower_folding() -> Folding:
    """`str.lower()`."""
    return folding(lower_table())


@lru_cache(maxsize=1)
def ccnet_folding() -> Folding:
    """CCNet's normal form, but for white space at the ends."""
    return folding(ccnet_table())


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


_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_SPACES = _ONES * np.uint64(32)
_DELETES = _ONES * np.uint64(127)
# Added to an ASCII byte, these reach its top bit from A, behind Z, from 0, behind 9 on.
_FROM_A, _BEHIND_Z = _ONES * np.uint64(128 - 65), _ONES * np.uint64(128 - 91)
_FROM_0, _BEHIND_9 = _ONES * np.uint64(128 - 48), _ONES * np.uint64(128 - 58)
_LOW = np.uint64(15)


@njit(nogil=True, inline="always")
def _is_plain(eight, floor):
    """Whether none of eight bytes goes, or is more than ASCII."""
    if eight & _TOPS:
        return False
    if floor == 0:
        return True
    if floor == 128:
        return False
    deletes = eight ^ _DELETES
    gone = ((eight - _SPACES) & ~eight) | ((deletes - _ONES) & ~deletes)
    return (gone & _TOPS) == 0


@njit(nogil=True, inline="always")
def _fold_plain(eight, zeros):
    """Eight ASCII bytes in lower case; zeros: digits become 0."""
    upper = (eight + _FROM_A) & ~(eight + _BEHIND_Z) & _TOPS
    eight |= upper >> np.uint64(2)
    if zeros:
        digit = (eight + _FROM_0) & ~(eight + _BEHIND_9) & _TOPS
        eight &= ~((digit >> np.uint64(7)) * _LOW)
    return eight


@njit(nogil=True, inline="always")
def _put8(out, n, eight):
    """Writes eight bytes to out[n:]; the compiler makes it one store."""
    n = np.uint64(n)
    for k in range(np.uint64(8)):
        out[n + k] = np.uint8((eight >> (np.uint64(8) * k)) & np.uint64(255))


@njit(nogil=True, allocates=True)
def fold(data: np.ndarray, start: int, end: int, how: Folding, out: np.ndarray) -> int:
    """Writes data[start:end] folded to out; returns its bytes, or LOOK.

    out: uint8[2 * (end - start) or more], since a character of two bytes may become one of three.
    """
    n = 0
    i = start
    while i < end:
        if i + 8 <= end:
            eight = load8(data, np.uint64(i))
            if _is_plain(eight, how.floor):
                _put8(out, n, _fold_plain(eight, how.zeros))
                n += 8
                i += 8
                continue
        elif end - start >= 8:
            # The last bytes again with those before them: one byte in, one byte out.
            eight = load8(data, np.uint64(end - 8))
            if _is_plain(eight, how.floor):
                n += end - i
                _put8(out, n - 8, _fold_plain(eight, how.zeros))
                return n
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
        code = np.int64(how.table[code])
        if code == LOOK:
            return LOOK
        if code != GONE:
            n = put_code(out, n, code)
        i += size
    return n
