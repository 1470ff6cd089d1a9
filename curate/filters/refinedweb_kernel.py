"""Kernels for RefinedWeb's line rules: character classes, words, counters, runs of newlines, and
marks on the bytes to cut. The rules run one by one over the page, as in DCLM's code, where a period
in a pattern matches any character."""

# As in pyproject.toml for other kernels: numba accepts more types than the annotations state.
# mypy: disable-error-code="assignment,arg-type"

from __future__ import annotations

import numpy as np

from curate.documents.cutting import mark_ends
from curate.text.lines import longest, strip_space
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
# Three counts of 16 bits in one number: upper case, digits and non-ASCII.
_PACKED = np.zeros(256, np.uint64)
_PACKED[65:91] = 1
_PACKED[48:58] = 1 << 16
_PACKED[128:] = 1 << 32
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
    """Return the numbers of characters, upper-case letters and digits in data[a:z]."""
    upper = digits = outside = np.int64(0)
    i = a
    while i < z:
        # So few bytes at a time that no count overflows into the next (`_PACKED`).
        stop = min(z, i + 30_000)
        packed = np.uint64(0)
        for k in range(np.uint64(i), np.uint64(stop)):
            packed += _PACKED[data[k]]
        upper += np.int64(packed & _LOW)
        digits += np.int64((packed >> np.uint64(16)) & _LOW)
        outside += np.int64(packed >> np.uint64(32))
        i = stop
    if outside == 0:
        return z - a, upper, digits
    inner = np.int64(0)  # bytes that are not the first of a character
    k, end = np.uint64(a), np.uint64(z)
    while k < end:
        if data[k] < 0x80:
            k += _ONE
            continue
        code, n = _code(data, np.int64(k), z)
        upper += np.int64((flags[code] & UPPER) != 0)
        digits += np.int64((flags[code] & DIGIT) != 0)
        inner += n - 1
        k += np.uint64(n)
    return z - a - inner, upper, digits


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
def is_counter(data, a, z, flags, counted):
    r"""Return True if data[a:z] in lower case matches `\W*\d[,.\d]*[kmb]?\s+(likes|...)\W*`.
    `counted` are the nouns, as returned by refinedweb._patterns."""
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
        if p == stop:
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


@njit(nogil=True)
def _match(data, i, end, text, first, stop):
    for k in range(first, stop):
        if i >= end:
            return -1
        want = text[k]
        if want == 46:
            i += char_bytes(data[i])
            continue
        letter, n = small_letter(data, i, end, True)
        if letter != want:
            return -1
        i += n
    return i


@njit(nogil=True)
def _space_before(data, i, a):
    k = i - 1
    while k > a and (data[k] & 0xC0) == 0x80:
        k -= 1
    return k if k >= a and space_bytes(data, k, i) == i - k else i


@njit(nogil=True)
def cut_anywhere(data, a, z, patterns, mark, base):
    """Mark all matches of patterns in data[a:z], with a white space before each; return their
    number. mark[i - base] marks data[i]."""
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
            stop = _match(data, i, z, text, at[p], at[p + 1])
            if stop > i:
                break
        if stop > i:
            for k in range(_space_before(data, i, after), stop):
                mark[k - base] = ANYWHERE
            cuts += 1
            i = after = stop
        else:
            i += 1
    return cuts


@njit(nogil=True)
def _pattern_at_end(line, first, size, text, at, begins):
    for i in range(max(first, size - 4 * longest(at[:-1], at[1:])), size):
        if begins[line[i]]:
            for p in range(len(at) - 1):
                if _match(line, i, size, text, at[p], at[p + 1]) == size:
                    return _space_before(line, i, first), size
    return size, size


@njit(nogil=True)
def _pattern_at_start(line, first, size, text, at):
    for p in range(len(at) - 1):
        stop = _match(line, first, size, text, at[p], at[p + 1])
        if stop > first:
            if stop < size:
                stop += space_bytes(line, stop, size)
            return first, stop
    return first, first


@njit(nogil=True)
def _copy_unmarked(data, a, z, mark, base, line, where):
    n = 0
    for i in range(a, z):
        if mark[i - base] == 0:
            line[n] = data[i]
            where[n] = i
            n += 1
    return n


@njit(nogil=True)
def _pattern_at_edge(rule, line, first, size, patterns, low, high):
    text, at, begins = patterns
    if low or high:
        start, end = strip_space(line, first, size)
        first = start if low else first
        size = end if high else size
    if rule == END:
        return _pattern_at_end(line, first, size, text, at, begins)
    if first < size and begins[line[first]]:
        return _pattern_at_start(line, first, size, text, at)
    return first, first


@njit(nogil=True)
def cut_at_edge(rule, data, a, z, mark, base, edited, line, where, patterns, most, low, high):
    """Mark the match of a pattern at the end (`rule` END) or start (START) of the short line
    data[a:z]; return True if found. If `edited`, only bytes not marked yet are searched, and only
    if these have at most `most` words. `line` and `where` are scratch memory. White space is
    ignored at the line's start if `low`, at its end if `high`."""
    if not edited:
        start, end = _pattern_at_edge(rule, data, a, z, patterns, low, high)
        for i in range(start, end):
            mark[i - base] = rule
        return start < end
    n = _copy_unmarked(data, a, z, mark, base, line, where)
    if n == 0 or count_words(line, np.int64(0), n) > most:
        return False
    start, end = _pattern_at_edge(rule, line, np.int64(0), n, patterns, low, high)
    for i in range(start, end):
        mark[where[i] - base] = rule
    return start < end


@njit(cache=True, nogil=True)
def judge_lines(
    data, offsets, rows, start, end, more, flags, limits, most, any_, ends, starts, counted, mark
):
    """Mark in `mark` (one entry per byte) the bytes that DCLM's modifiers cut.

    `more` (int64[lines]) counts the words in scripts without spaces, `flags` is
    `character_flags()`, and `limits` is (max_uppercase, max_numeric). A short line has at most
    `most` words. `any_`, `ends` and `starts` are the patterns to match anywhere, at the end and at
    the start of a line. `counted` are nouns that follow a number, such as `likes`. The function
    refinedweb._patterns makes `any_`, `ends`, `starts` and `counted`.

    Returns int64[rows, 5]: lines dropped, lines edited, words before, words removed, bytes left.
    """
    base = offsets[0]
    n_rows = len(offsets) - 1
    out = np.zeros((n_rows, 5), np.int64)
    verdict = np.zeros(len(start), np.uint8)
    edited = np.zeros(len(start), np.bool_)
    line = np.empty(longest(start, end), np.uint8)
    where = np.empty(len(line), np.int64)
    short = np.empty(len(start), np.int64)
    for r in range(n_rows):
        first, stop = rows[r], rows[r + 1]
        top, bottom = offsets[r], offsets[r + 1]
        maybe_numeric = False
        for k in range(first, stop):
            chars, upper, digits = line_classes(data, start[k], end[k], flags)
            if chars and upper / chars > limits[0]:
                verdict[k] = UPPERCASE
            maybe_numeric |= digits > 0
        if maybe_numeric:
            low, high = written_ends(data, first, stop, start, end, verdict, mark, base)
            for k in range(first, stop):
                a, z = start[k], end[k]
                if verdict[k] or a == z:
                    continue
                # DCLM has stripped the page before this rule runs.
                if k == low or k == high:
                    inner_start, inner_end = strip_space(data, a, z)
                    a = inner_start if k == low else a
                    z = inner_end if k == high else z
                chars, _, digits = line_classes(data, a, z, flags)
                if chars and digits / chars > limits[1]:
                    verdict[k] = NUMERIC
                elif digits and is_counter(data, a, z, flags, counted):
                    verdict[k] = COUNTER
        for k in range(first, stop):
            short[k] = most + 1
            if verdict[k] == 0 and end[k] > start[k]:
                short[k] = count_words(data, start[k], end[k]) + more[k]
                if short[k] < 2:
                    verdict[k] = ONE_WORD if short[k] else SPACE
            if verdict[k]:
                drop_line(k, start, end, bottom, mark, base, verdict[k])
                short[k] = most + 1
        for k in range(first, stop):
            if short[k] <= most:
                a, z = start[k], end[k]
                if cut_anywhere(data, a, z, any_, mark, base):
                    edited[k] = True
                    if not is_written(data, a, z, mark, base):
                        verdict[k] = ANYWHERE
                        drop_line(k, start, end, bottom, mark, base, ANYWHERE)
        for rule in (END, START):
            low, high = written_ends(data, first, stop, start, end, verdict, mark, base)
            patterns = ends if rule == END else starts
            for k in range(first, stop):
                if verdict[k] or short[k] > most:
                    continue
                a, z = start[k], end[k]
                ends_page = k == low, k == high
                if cut_at_edge(
                    rule, data, a, z, mark, base, edited[k], line, where, patterns, most, *ends_page
                ):
                    edited[k] = True
                    if not is_written(data, a, z, mark, base):
                        verdict[k] = rule
                        drop_line(k, start, end, bottom, mark, base, rule)
        for k in range(first, stop):
            out[r, 0] += verdict[k] > 0
            out[r, 1] += edited[k] and verdict[k] == 0
        out[r, 4] = mark_ends(data, top, bottom, mark, base, SPACE)
        out[r, 2] = words_of(data, top, bottom, flags)
        if out[r, 4] < bottom - top:
            out[r, 3] = out[r, 2] - words_left(data, top, bottom, mark, base, flags)
        for k in range(first, stop):
            out[r, 2] += more[k]
            out[r, 3] += more[k] * (verdict[k] > 0)
    return out
