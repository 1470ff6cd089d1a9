"""Kernels for RefinedWeb's line rules: character classes, words, counters, runs of newlines. The
rules run one by one over the page, as in DCLM's code, or all on each line, as in the paper."""

# As in pyproject.toml for other kernels: numba accepts more types than the annotations state.
# mypy: disable-error-code="assignment,arg-type"

from __future__ import annotations

import numpy as np

from curate.text.unicode import (
    ALNUM,
    ASCII_SPACE,
    DIGIT,
    UPPER,
    char_bytes,
    code_point,
    is_digit,
    space_bytes,
)
from llmcurate.base.kernels import njit

RULES = (
    "uppercase", "numeric", "counter", "one_word", "anywhere", "line_end", "line_start",
    "white_space",
)  # fmt: skip
# Marks on bytes: one more than the index of the rule that cuts the byte.
UPPERCASE, NUMERIC, COUNTER, ONE_WORD, ANYWHERE, END, START, SPACE = range(1, 9)
# The separators of fastText's tokenizer, by which DCLM counts words.
_BREAK = np.zeros(256, np.bool_)
_BREAK[[0, 9, 10, 11, 12, 13, 32]] = True
# For each byte: 1 if it is white space, 2 if white space outside ASCII may begin with it.
_SPACE_KIND = np.zeros(256, np.uint8)
_SPACE_KIND[ASCII_SPACE] = 1
_SPACE_KIND[[0xC2, 0xE1, 0xE2, 0xE3]] = 2
_ONE = np.uint64(1)
# Four counts of 16 bits in one number: upper case, digits, white space and non-ASCII.
_PACKED = np.zeros(256, np.uint64)
_PACKED[65:91] = 1
_PACKED[48:58] = 1 << 16
_PACKED[ASCII_SPACE] = 1 << 32
_PACKED[128:] = 1 << 48
_LOW = np.uint64(0xFFFF)
_ASCII_ALNUM = np.array([b < 128 and chr(b).isalnum() for b in range(256)])


@njit(nogil=True, inline="always")
def _code(data, i, end):
    """Return (code point, number of bytes) of the character at i, (0, 1) for invalid UTF-8."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    code = np.int64(code_point(data, i, end))
    if code < 0 or code > 0x10FFFF:
        return np.int64(0), 1
    return code, char_bytes(b)


@njit(nogil=True)
def line_classes(data, a, z, flags):
    """Return the numbers of characters, upper-case letters, digits and white space in data[a:z]."""
    upper = digits = spaces = outside = np.int64(0)
    i = a
    while i < z:
        # So few bytes at a time that no count overflows into the next (`_PACKED`).
        stop = min(z, i + 30_000)
        packed = np.uint64(0)
        for k in range(np.uint64(i), np.uint64(stop)):
            packed += _PACKED[data[k]]
        upper += np.int64(packed & _LOW)
        digits += np.int64((packed >> np.uint64(16)) & _LOW)
        spaces += np.int64((packed >> np.uint64(32)) & _LOW)
        outside += np.int64(packed >> np.uint64(48))
        i = stop
    if outside == 0:
        return z - a, upper, digits, spaces
    inner = np.int64(0)  # bytes that are not the first of a character
    k, end = np.uint64(a), np.uint64(z)
    while k < end:
        if data[k] < 0x80:
            k += _ONE
            continue
        code, n = _code(data, np.int64(k), z)
        upper += np.int64((flags[code] & UPPER) != 0)
        digits += np.int64((flags[code] & DIGIT) != 0)
        spaces += np.int64(space_bytes(data, k, end) > 0)
        inner += n - 1
        k += np.uint64(n)
    return z - a - inner, upper, digits, spaces


@njit(nogil=True)
def count_words(data, a, z):
    """Return the number of words in data[a:z], as `str.split` counts them."""
    words = 0
    outside = np.int64(1)
    i, stop = np.uint64(a), np.uint64(z)  # unsigned: see text/tables.py
    while i < stop:
        kind = np.int64(_SPACE_KIND[data[i]])
        if kind == 2:
            n = np.uint64(space_bytes(data, i, stop))
            kind = np.int64(n > 0)
            i += n if n else _ONE
        else:
            i += _ONE
        words += outside & (kind ^ 1)
        outside = kind
    return words


@njit(nogil=True, inline="always")
def small_letter(data, i, end, loose):
    """Return (lower-case ASCII letter, number of bytes) of the character at i. A byte of any other
    character is returned unchanged. If `loose`, fold as re.IGNORECASE does: the long s is an s, and
    an i with or without a dot is an i. Otherwise fold as `str.lower` does."""
    b = np.int64(data[i])
    if b < 0x80:
        return (b + 32 if 65 <= b <= 90 else b), 1
    if b == 0xE2 and i + 2 < end and data[i + 1] == 0x84 and data[i + 2] == 0xAA:
        return np.int64(107), 3  # KELVIN SIGN
    if loose and i + 1 < end:
        c = data[i + 1]
        if b == 0xC5 and c == 0xBF:
            return np.int64(115), 2
        if b == 0xC4 and (c == 0xB0 or c == 0xB1):
            return np.int64(105), 2
    return b, 1


@njit(nogil=True)
def is_counter(data, a, z, flags, counted, singular):
    r"""Return True if data[a:z] in lower case matches `\W*\d[,.\d]*[kmb]?\s+(likes|...)\W*`.
    `counted` are the nouns, as returned by refinedweb._patterns. If `singular`, a noun also matches
    without its last letter."""
    nouns, at, _ = counted
    i = a
    while i < z:
        code, n = _code(data, i, z)
        if (flags[code] & ALNUM) or code == 95:
            break
        i += n
    if i >= z:
        return False
    code, n = _code(data, i, z)
    if not is_digit(code):
        return False
    while i < z:
        code, n = _code(data, i, z)
        if code != 44 and code != 46 and not is_digit(code):
            break
        i += n
    if i >= z:
        return False
    letter, n = small_letter(data, i, z, False)
    if letter == 107 or letter == 109 or letter == 98:
        i += n
    blank = i
    while i < z:
        n = space_bytes(data, i, z)
        if n == 0:
            break
        i += n
    if i == blank or i >= z:
        return False
    for w in range(len(at) - 1):
        k = i
        first, stop = at[w], at[w + 1]
        p = first
        while p < stop and k < z:
            letter, n = small_letter(data, k, z, False)
            if letter != nouns[p]:
                break
            k += n
            p += 1
        if p == stop or (singular and p == stop - 1):
            while k < z:
                code, n = _code(data, k, z)
                if (flags[code] & ALNUM) or code == 95:
                    break
                k += n
            if k >= z:
                return True
    return False


@njit(nogil=True)
def drop_line(k, start, end, row_end, mark, base, rule):
    """Mark the bytes of line k and its newline with `rule`, except those marked already."""
    for i in range(start[k], min(end[k] + 1, row_end)):
        if mark[i - base] == 0:
            mark[i - base] = rule


@njit(nogil=True)
def written_ends(data, first, stop, start, end, verdict, mark, base):
    """Return the indices of a row's first and last line with more than white space, or (-1, -1)."""
    low = high = np.int64(-1)
    for k in range(first, stop):
        if verdict[k] == 0 and is_written(data, start[k], end[k], mark, base):
            low = k
            break
    if low >= 0:
        for k in range(stop - 1, first - 1, -1):
            if verdict[k] == 0 and is_written(data, start[k], end[k], mark, base):
                high = k
                break
    return low, high


@njit(nogil=True)
def is_written(data, a, z, mark, base):
    """Return True if the unmarked bytes of data[a:z] are more than white space."""
    i = a
    while i < z:
        n = space_bytes(data, i, z)
        if n == 0:
            if mark[i - base] == 0:
                return True
            n = 1
        i += n
    return False


@njit(nogil=True)
def words_of(data, a, z, flags):
    """Return the number of words in data[a:z] as DCLM counts them: the text is split at ASCII white
    space, and a word begins with a letter or digit."""
    words = 0
    outside = np.int64(1)
    for i in range(np.uint64(a), np.uint64(z)):  # unsigned: see text/tables.py
        b = data[i]
        words += outside & np.int64(_ASCII_ALNUM[b])
        if b >= 0x80 and outside:
            code, _ = _code(data, np.int64(i), z)
            words += (flags[code] & ALNUM) != 0
        outside = np.int64(_BREAK[b])
    return words


@njit(nogil=True)
def words_left(data, a, z, mark, base, flags):
    """Return the number of words in the unmarked bytes of data[a:z], as words_of() counts them."""
    words = 0
    outside = np.int64(1)
    for i in range(np.uint64(a), np.uint64(z)):
        b = data[i]
        kept = np.int64(mark[i - np.uint64(base)] == 0)
        words += outside & kept & np.int64(_ASCII_ALNUM[b])
        if b >= 0x80 and outside & kept:
            code, _ = _code(data, np.int64(i), z)
            words += (flags[code] & ALNUM) != 0
        outside = (np.int64(_BREAK[b]) & kept) | (outside & (kept ^ 1))
    return words


@njit(cache=True, nogil=True)
def long_runs(data: np.ndarray, offsets: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the newlines that follow `most` or more other newlines, as (mark: uint8[bytes], 1 for
    such a newline; rows: bool[rows], True for a row with such a newline)."""
    mark = np.zeros(offsets[-1] - offsets[0], np.uint8)
    rows = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(rows)):
        run = 0
        for at in range(offsets[row], offsets[row + 1]):
            run = run + 1 if data[at] == 10 else 0
            if run > most:
                mark[at - offsets[0]] = 1
                rows[row] = True
    return mark, rows
