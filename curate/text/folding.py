"""Folding of UTF-8 bytes (to lower case or to CCNet's form), so that keys of passages can be
compared.

Eight ASCII bytes are folded at once, as one number; other characters are looked up in a table.
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

# Entries of a folding table: the character is removed; the result depends on the text around it.
GONE, LOOK = -1, -2
# The keys of UNICODE_PUNCT in CCNet's cc_net/text_normalizer.py.
CCNET_PUNCTUATION = "，。、„”“«»１」「《》´∶：？！（）；–—．～’…━〈〉【】％►"
CCNET_CONTROLS = (*range(32), *range(127, 160))
_PLANES = (*range(0x30000), *range(0xE0000, 0xE0200))  # no other plane holds a cased letter


@lru_cache(maxsize=1)
def lower_table() -> np.ndarray:
    """Return the lower case of every code point, as int32[0x110000]. The entry is LOOK if the lower
    case is more than one character (U+0130) or depends on the place in the word (capital sigma)."""
    table = np.arange(sys.maxunicode + 1, dtype=np.int32)
    for code in _PLANES:
        small = chr(code).lower()
        table[code] = ord(small) if len(small) == 1 else LOOK
    table[0x3A3] = LOOK
    return table


@lru_cache(maxsize=1)
def ccnet_table() -> np.ndarray:
    """Return CCNet's form of every code point, int32[0x110000]: lower case, digits (Nd) as 0, and
    punctuation and control characters as GONE. Source: normalize_for_dedup in
    cc_net/text_normalizer.py."""
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
    """Return CCNet's normal form of a line (normalize_for_dedup): stripped, in lower case, with
    every digit as 0, without control characters and CCNet's 34 punctuation characters."""
    return _GOES.sub("", _DIGIT.sub("0", line.strip().lower()))


class Folding(NamedTuple):
    """A way to fold text. `table` (int32[0x110000]) is each code point's folded code point, GONE
    (dropped) or LOOK (the result depends on the text around it). `floor` tells which ASCII
    characters are dropped. 0: none. 32: control characters (0 to 31, and 127). 128: those that are
    GONE in the table. `zeros` is True if digits become 0."""

    table: np.ndarray
    floor: int
    zeros: bool


def folding(table: np.ndarray) -> Folding:
    """Return the Folding for a table. Eight bytes are folded at once if the table maps ASCII as
    `str.lower()` does; it may also map digits to 0 and drop control characters."""
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
    return folding(lower_table())


@lru_cache(maxsize=1)
def ccnet_folding() -> Folding:
    """Return the folding to CCNet's normal form. It does not strip white space from the ends."""
    return folding(ccnet_table())


@njit(nogil=True, inline="always")
def put_code(out, n, code):
    """Write a code point as UTF-8 to out[n:] and return the position after it."""
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
# Added to an ASCII byte, these set its top bit from A, after Z, from 0 and after 9 on.
_FROM_A, _AFTER_Z = _ONES * np.uint64(128 - 65), _ONES * np.uint64(128 - 91)
_FROM_0, _AFTER_9 = _ONES * np.uint64(128 - 48), _ONES * np.uint64(128 - 58)
_LOW = np.uint64(15)


@njit(nogil=True, inline="always")
def _is_plain(eight, floor):
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
    upper = (eight + _FROM_A) & ~(eight + _AFTER_Z) & _TOPS
    eight |= upper >> np.uint64(2)
    if zeros:
        digit = (eight + _FROM_0) & ~(eight + _AFTER_9) & _TOPS
        eight &= ~((digit >> np.uint64(7)) * _LOW)
    return eight


@njit(nogil=True, inline="always")
def _put8(out, n, eight):
    n = np.uint64(n)  # the loop below compiles to one store
    for k in range(np.uint64(8)):
        out[n + k] = np.uint8((eight >> (np.uint64(8) * k)) & np.uint64(255))


@njit(nogil=True, allocates=True)
def fold(data: np.ndarray, start: int, end: int, how: Folding, out: np.ndarray) -> int:
    """Fold data[start:end] and write the bytes to `out`. Return their number, or LOOK if
    `how.table` has LOOK for a character: then the table alone cannot fold the text. `out` is
    uint8[], at least twice the size of the text, because characters may grow from 2 bytes to 3."""
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
            # Fold the last bytes again with those before them: lengths do not change.
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
