"""Cutting UTF-8 text by a compiled pattern: every match is a piece, and so is what lies between.

That is `Split(pattern, "isolated")` of `tokenizers`, and what tiktoken does where a pattern leaves
nothing out.
"""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit

_1, _2, _3 = np.uint64(1), np.uint64(2), np.uint64(3)
_6, _12, _18 = np.uint64(6), np.uint64(12), np.uint64(18)
_LOW = np.uint64(0x3F)


@njit(nogil=True, inline="always")
def class_at(data, at, table):
    """(class: uint64, bytes) of the code point at a position of valid UTF-8."""
    b = np.uint64(data[np.uint64(at)])
    if b < np.uint64(0x80):
        return np.uint64(table[1][b]), 1
    i = np.uint64(at)
    second = np.uint64(data[i + _1]) & _LOW
    if b < np.uint64(0xE0):
        code_point, size = (b & np.uint64(0x1F)) << _6 | second, 2
    else:
        third = np.uint64(data[i + _2]) & _LOW
        if b < np.uint64(0xF0):
            code_point, size = (b & np.uint64(0x0F)) << _12 | second << _6 | third, 3
        else:
            fourth = np.uint64(data[i + _3]) & _LOW
            code_point = (b & np.uint64(0x07)) << _18 | second << _12 | third << _6 | fourth
            size = 4
    block = np.uint64(table[2][code_point >> np.uint64(8)])
    return np.uint64(table[3][block << np.uint64(8) | code_point & np.uint64(0xFF)]), size


@njit(nogil=True, inline="always")
def match_at(data, start, end, table):
    """The end of the match that begins at `start`, or `start` where none does (or an empty one)."""
    steps, ascii_classes, columns = table[0], table[1], np.uint64(table[4])
    at, match_end = start, start
    state = columns << _1
    while at < end:
        b = np.uint64(data[np.uint64(at)])
        if b < np.uint64(0x80):
            kind, size = np.uint64(ascii_classes[b]), 1
        else:
            kind, size = class_at(data, at, table)
        state = np.uint64(steps[(state >> _1) + kind])
        if state & _1:
            match_end = at
        if state <= _1:
            return match_end
        at += size
    if np.uint64(steps[(state >> _1) + columns - _1]) & _1:
        match_end = at
    return match_end


@njit(nogil=True)
def _groups(data, start, end, size, ends, count):
    """Appends the ends of groups of `size` code points, counted from the end; as `cut` does."""
    remaining = 0
    for k in range(start, end):
        remaining += data[k] & 0xC0 != 0x80
    for k in range(start, end):
        if data[k] & 0xC0 != 0x80:
            if k > start and remaining % size == 0:
                ends[count] = k
                count += 1
            remaining -= 1
    ends[count] = end
    return count + 1


@njit(nogil=True)
def cut(data, start, end, table, ends, count):
    """Appends to ends: int64[] the ends of the pieces of data[start:end]; returns their new count.

    `ends` needs room for a piece a code point.
    """
    at = start
    loose = False  # the text before `at` is in no match
    while at < end:
        z = match_at(data, at, end, table)
        if z == at:
            _, size = class_at(data, at, table)
            at += size
            loose = True
            continue
        if loose:
            ends[count] = at
            count += 1
            loose = False
        if table[5]:
            count = _groups(data, at, z, table[5], ends, count)
        else:
            ends[count] = z
            count += 1
        at = z
    if loose:
        ends[count] = end
        count += 1
    return count


@njit(cache=True, nogil=True)
def cut_rows(data, offsets, tables):
    """Ends of the pieces of every row: (ends: int64[], counts: int64[rows]).

    tables: tuple of compiled patterns; each cuts the pieces that the one before it left.
    """
    size = offsets[-1] - offsets[0]
    ends = np.empty(size, np.int64)
    again = np.empty(size if len(tables) > 1 else 0, np.int64)
    counts = np.zeros(len(offsets) - 1, np.int64)
    total = np.int64(0)
    for row in range(len(offsets) - 1):
        before = total
        total = cut(data, offsets[row], offsets[row + 1], tables[0], ends, total)
        for k in range(1, len(tables)):
            n = np.int64(0)
            at = offsets[row]
            for p in range(before, total):
                n = cut(data, at, ends[p], tables[k], again, n)
                at = ends[p]
            for p in range(n):
                ends[before + p] = again[p]
            total = before + n
        counts[row] = total - before
    return ends[:total], counts


_OPEN, _NONE, _MATCH = range(3)


@njit(nogil=True, inline="always")
def _sought(data, start, table):
    """Whether a match begins at `start`, or that is open: more text than `data` may change it."""
    steps, ascii_classes, columns = table[0], table[1], np.uint64(table[4])
    at, answer = start, _NONE
    state = columns << _1
    while at < len(data):
        b = np.uint64(data[np.uint64(at)])
        if b < np.uint64(0x80):
            kind, size = np.uint64(ascii_classes[b]), 1
        else:
            kind, size = class_at(data, at, table)
        state = np.uint64(steps[(state >> _1) + kind])
        if state & _1 and at > start:
            answer = _MATCH
        if state <= _1:
            return answer
        at += size
    return _OPEN


@njit(cache=True, nogil=True)
def settled(data, ends, table):
    """How many pieces of a text that begins with `data` do not change, whatever follows.

    data: uint8[], valid UTF-8; ends: int64[], as `cut` gives them for it.
    """
    at = np.int64(0)
    loose = np.int64(0)  # 1 behind a piece without a match, which goes on to the next match
    for piece in range(len(ends)):
        answer = _NONE
        while at < ends[piece] and answer == _NONE:
            answer = _sought(data, at, table)
            if answer == _OPEN:
                return piece - loose
            _, size = class_at(data, at, table)
            at += size
        at, loose = ends[piece], np.int64(answer == _NONE)
    return len(ends) - loose
