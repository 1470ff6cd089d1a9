"""RefinedWeb's line rules as kernels: what is a counter, a short line with a pattern, a word.

Readings: DCLM's code runs its rules one after the other over the page, which is stripped between
them; the paper judges each line once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from curate.text.pieces import strip_space
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

RULES = (
    "uppercase",
    "numeric",
    "counter",
    "one_word",
    "anywhere",
    "line_end",
    "line_start",
    "white_space",
)
# Marks: one more than the place of the rule.
UPPERCASE, NUMERIC, COUNTER, ONE_WORD, ANYWHERE, END, START, SPACE = range(1, 9)
# counter_line_modifier in DCLM's baselines/mappers/modifiers.py.
COUNTED = (
    b"likes",
    b"shares",
    b"comments",
    b"retweets",
    b"reposts",
    b"quotes",
    b"bookmarks",
    b"upvotes",
    b"downvotes",
    b"downloads",
    b"views",
    b"followers",
)
_COUNTED = np.frombuffer(b"".join(COUNTED), np.uint8).copy()
_COUNTED_AT = np.cumsum([0, *map(len, COUNTED)]).astype(np.int64)
# What fastText's tokenizer, by which DCLM counts words, cuts at.
_BREAK = np.zeros(256, np.bool_)
_BREAK[[0, 9, 10, 11, 12, 13, 32]] = True
# 1 for white space, 2 for the first byte of what may be white space outside ASCII.
_SPACE_KIND = np.zeros(256, np.uint8)
_SPACE_KIND[ASCII_SPACE] = 1
_SPACE_KIND[[0xC2, 0xE1, 0xE2, 0xE3]] = 2
_ONE = np.uint64(1)
# Upper case, digits, white space and what is not ASCII, each 16 bits of one number.
_PACKED = np.zeros(256, np.uint64)
_PACKED[65:91] = 1
_PACKED[48:58] = 1 << 16
_PACKED[ASCII_SPACE] = 1 << 32
_PACKED[128:] = 1 << 48
_LOW = np.uint64(0xFFFF)
_ASCII_ALNUM = np.array([b < 128 and chr(b).isalnum() for b in range(256)])


@njit(cache=True, nogil=True, inline="always")
def _code(data, i, end):
    """(code point, bytes) at i; what is not UTF-8 is a character of one byte, of no class."""
    b = np.int64(data[i])
    if b < 0x80:
        return b, 1
    code = np.int64(code_point(data, i, end))
    if code < 0 or code > 0x10FFFF:
        return np.int64(0), 1
    return code, char_bytes(b)


@njit(cache=True, nogil=True)
def line_classes(data, a, z, flags):
    """(characters, upper-case ones, digits, white space) of data[a:z]."""
    upper = digits = spaces = outside = np.int64(0)
    i = a
    while i < z:
        # Four counts in one number, of bytes too few for one to run into the next.
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


@njit(cache=True, nogil=True)
def count_words(data, a, z):
    """Words of `str.split` in data[a:z]."""
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


@njit(cache=True, nogil=True, inline="always")
def _small(data, i, end, loose):
    """(lower-case ASCII, bytes) of the character at i; loose: as re.IGNORECASE, by which the long
    s and both dots of i match too, and not only as `str.lower`."""
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


@njit(cache=True, nogil=True)
def _match(data, i, end, text, first, stop, wild):
    """Where the pattern text[first:stop] that begins at i ends, or -1; wild: a period matches any
    one character."""
    for k in range(first, stop):
        if i >= end:
            return -1
        want = text[k]
        if wild and want == 46:
            i += char_bytes(data[i])
            continue
        found, n = _small(data, i, end, True)
        if found != want:
            return -1
        i += n
    return i


@njit(cache=True, nogil=True)
def is_counter(data, a, z, flags, singular):
    """`\\W*\\d[,.\\d]*[kmb]?\\s+(likes|...)\\W*`, lower-cased; singular: `1 like` too."""
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
    letter, n = _small(data, i, z, False)
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
    for w in range(len(_COUNTED_AT) - 1):
        k = i
        first, stop = _COUNTED_AT[w], _COUNTED_AT[w + 1]
        p = first
        while p < stop and k < z:
            letter, n = _small(data, k, z, False)
            if letter != _COUNTED[p]:
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


@njit(cache=True, nogil=True)
def _space_before(data, i, a):
    """Where the white space character before i begins, i if there is none in data[a:i]."""
    k = i - 1
    while k > a and (data[k] & 0xC0) == 0x80:
        k -= 1
    return k if k >= a and space_bytes(data, k, i) == i - k else i


@njit(cache=True, nogil=True)
def cut_anywhere(data, a, z, patterns, wild, mark, base):
    """Marks every pattern in data[a:z], from left to right, with one white space before it."""
    text, at, begins = patterns
    cuts = 0
    after = a  # where the last cut ended
    i = a
    while i < z:
        if not begins[data[i]]:
            i += 1
            continue
        stop = -1
        for p in range(len(at) - 1):
            stop = _match(data, i, z, text, at[p], at[p + 1], wild)
            if stop > i:
                break
        if stop > i:
            mark[_space_before(data, i, after) - base : stop - base] = ANYWHERE
            cuts += 1
            i = after = stop
        else:
            i += 1
    return cuts


@njit(cache=True, nogil=True)
def _pattern_at_end(line, first, size, text, at, begins, wild):
    """(start, end) of a pattern at the end of line[first:size], with one white space before it."""
    longest = np.int64(0)
    for p in range(len(at) - 1):
        longest = max(longest, at[p + 1] - at[p])
    for i in range(max(first, size - 4 * longest), size):
        if begins[line[i]]:
            for p in range(len(at) - 1):
                if _match(line, i, size, text, at[p], at[p + 1], wild) == size:
                    return _space_before(line, i, first), size
    return size, size


@njit(cache=True, nogil=True)
def _pattern_at_start(line, first, size, text, at, wild):
    """(start, end) of a pattern at the start of line[first:size], and of a white space after it."""
    for p in range(len(at) - 1):
        stop = _match(line, first, size, text, at[p], at[p + 1], wild)
        if stop > first:
            if stop < size:
                stop += space_bytes(line, stop, size)
            return first, stop
    return first, first


@njit(cache=True, nogil=True)
def _left_of(data, a, z, mark, base, line, where):
    """Copies what is not marked of data[a:z] to line, and its places to where; returns its size."""
    n = 0
    for i in range(a, z):
        if mark[i - base] == 0:
            line[n] = data[i]
            where[n] = i
            n += 1
    return n


@njit(cache=True, nogil=True)
def drop_line(k, start, end, row_end, mark, base, rule):
    """Marks what is left of line k, and its newline."""
    for i in range(start[k], min(end[k] + 1, row_end)):
        if mark[i - base] == 0:
            mark[i - base] = rule


@njit(cache=True, nogil=True)
def _find_at(rule, line, first, size, patterns, wild, low, high):
    """(start, end) of a pattern at the end or at the start of line[first:size]; low, high: white
    space at the start and at the end of the line does not count."""
    text, at, begins = patterns
    if low or high:
        one, two = strip_space(line, first, size)
        first = one if low else first
        size = two if high else size
    if rule == END:
        return _pattern_at_end(line, first, size, text, at, begins, wild)
    if first < size and begins[line[first]]:
        return _pattern_at_start(line, first, size, text, at, wild)
    return first, first


@njit(cache=True, nogil=True)
def cut_at_edge(rule, data, a, z, mark, base, edited, line, where, patterns, wild, most, low, high):
    """Marks a pattern at the end or at the start of a short line; returns whether there was one.
    edited: whether some of the line is marked already."""
    if not edited:
        one, two = _find_at(rule, data, a, z, patterns, wild, low, high)
        mark[one - base : two - base] = rule
        return one < two
    n = _left_of(data, a, z, mark, base, line, where)
    if n == 0 or count_words(line, 0, n) > most:
        return False
    one, two = _find_at(rule, line, np.int64(0), n, patterns, wild, low, high)
    for i in range(one, two):
        mark[where[i] - base] = rule
    return one < two


@njit(cache=True, nogil=True)
def written_ends(data, first, stop, start, end, verdict, mark, base):
    """(the first and the last line of the row that hold more than white space, -1 for none)."""
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


@njit(cache=True, nogil=True)
def is_written(data, a, z, mark, base):
    """Whether data[a:z] holds more than white space without what is marked."""
    i = a
    while i < z:
        n = space_bytes(data, i, z)
        if n == 0:
            if mark[i - base] == 0:
                return True
            n = 1
        i += n
    return False


@njit(cache=True, nogil=True)
def words_of(data, a, z, flags):
    """Words of data[a:z] as DCLM counts them: cut at ASCII white space, those that begin with a
    letter or digit."""
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


@njit(cache=True, nogil=True)
def words_left(data, a, z, mark, base, flags):
    """The same of what is not marked."""
    words = 0
    outside = np.int64(1)
    for i in range(np.uint64(a), np.uint64(z)):
        b = data[i]
        here = np.int64(mark[i - np.uint64(base)] == 0)
        words += outside & here & np.int64(_ASCII_ALNUM[b])
        if b >= 0x80 and outside & here:
            code, _ = _code(data, np.int64(i), z)
            words += (flags[code] & ALNUM) != 0
        outside = (np.int64(_BREAK[b]) & here) | (outside & (here ^ 1))
    return words
