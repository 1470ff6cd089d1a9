"""Tests of characters in UTF-8 bytes, as numba kernels.

White space is Python's `str.isspace` (used by `str.split()` and `str.strip()`), line ends are those
of `str.splitlines()`, and digits are Unicode's Nd (what `\\d` matches).
"""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import lower_bound

ASCII_SPACE = np.zeros(256, np.bool_)
ASCII_SPACE[[9, 10, 11, 12, 13, 28, 29, 30, 31, 32]] = True
ASCII_LINE_END = np.zeros(256, np.bool_)
ASCII_LINE_END[[10, 11, 12, 13, 28, 29, 30]] = True
# The first digit of every run of ten in category Nd; planes beyond the first two have none.
DIGIT_ZEROS = np.array(
    [c for c in range(0x20000) if unicodedata.decimal(chr(c), None) == 0], np.int32
)


# Bits of `character_flags`.
UPPER, DIGIT, ALNUM = 1, 2, 4


@lru_cache(maxsize=1)
def character_flags() -> np.ndarray:
    """Return each code point's flags, uint8[0x110000]: UPPER, DIGIT, ALNUM (`str.isupper` etc.)."""
    flags = np.zeros(sys.maxunicode + 1, np.uint8)
    for code in (*range(0x40000), *range(0xE0000, 0xE0200)):  # no other plane holds any
        letter = chr(code)
        flags[code] = UPPER * letter.isupper() | DIGIT * letter.isdigit() | ALNUM * letter.isalnum()
    return flags


@njit(nogil=True, inline="always")
def char_bytes(lead: int) -> int:
    """Return the size in bytes of a UTF-8 character that starts with `lead`; 1 for a stray byte."""
    if lead < 0xC0:
        return 1
    if lead < 0xE0:
        return 2
    if lead < 0xF0:
        return 3
    return 4


@njit(nogil=True, inline="always")
def space_bytes(data: np.ndarray, i: int, end: int) -> int:
    """Return the size in bytes of the white space character at i, else 0."""
    b = data[i]
    if b < 0x80:
        return 1 if ASCII_SPACE[b] else 0
    if b == 0xC2:
        if i + 1 < end and (data[i + 1] == 0x85 or data[i + 1] == 0xA0):
            return 2
        return 0
    if b < 0xE1 or b > 0xE3 or i + 2 >= end:
        return 0
    c, d = data[i + 1], data[i + 2]
    if b == 0xE2:
        if c == 0x80 and (d <= 0x8A or d == 0xA8 or d == 0xA9 or d == 0xAF):
            return 3
        if c == 0x81 and d == 0x9F:
            return 3
        return 0
    if b == 0xE1:
        return 3 if c == 0x9A and d == 0x80 else 0
    return 3 if c == 0x80 and d == 0x80 else 0


@njit(nogil=True, inline="always")
def line_end_bytes(data: np.ndarray, i: int, end: int) -> int:
    """Return the size in bytes of the line end at i (CR LF is one of two bytes), else 0."""
    b = data[i]
    if b < 0x80:
        if not ASCII_LINE_END[b]:
            return 0
        return 2 if b == 13 and i + 1 < end and data[i + 1] == 10 else 1
    if b == 0xC2:
        return 2 if i + 1 < end and data[i + 1] == 0x85 else 0
    if b == 0xE2 and i + 2 < end and data[i + 1] == 0x80:
        return 3 if data[i + 2] == 0xA8 or data[i + 2] == 0xA9 else 0
    return 0


@njit(nogil=True)
def code_point(data: np.ndarray, i: int, end: int) -> int:
    """Return the code point at i; -1 if the bytes are cut off or not UTF-8."""
    b = np.int64(data[i])
    n = char_bytes(b)
    if n == 1:
        return b if b < 0x80 else -1
    if i + n > end:
        return -1
    value = b & (0x7F >> n)
    for k in range(1, n):
        value = (value << 6) | (np.int64(data[i + k]) & 0x3F)
    return value


@njit(nogil=True)
def is_digit(code: int) -> bool:
    """Return True if the code point is a decimal digit (category Nd)."""
    if 48 <= code <= 57:
        return True
    if code < 0x660:
        return False
    k = lower_bound(DIGIT_ZEROS, code + 1) - 1
    return code - DIGIT_ZEROS[k] < 10


@njit(nogil=True)
def is_lower_ascii(b: int) -> bool:
    return 97 <= b <= 122


@njit(nogil=True)
def count_chars(data: np.ndarray, start: int, end: int) -> int:
    """Return the number of code points in data[start:end]."""
    n = np.int64(0)
    for b in data[start:end]:  # a slice, so that it becomes vector code
        n += np.uint8(b & np.uint8(0xC0)) != np.uint8(0x80)
    return n


@njit(cache=True, nogil=True)
def row_chars(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return int64[rows]: the number of code points in every row."""
    out = np.empty(len(offsets) - 1, np.int64)
    for r in range(len(out)):
        out[r] = count_chars(data, offsets[r], offsets[r + 1])
    return out
