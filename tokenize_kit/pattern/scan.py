"""Cut UTF-8 text by a compiled pattern: every match is a piece, and so is the text between matches.

This is `Split(pattern, "isolated")` of `tokenizers`. tiktoken does the same if the pattern covers
every text.
"""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit

_1, _2, _3 = np.uint64(1), np.uint64(2), np.uint64(3)
_6, _12, _18 = np.uint64(6), np.uint64(12), np.uint64(18)
_LOW = np.uint64(0x3F)


@njit(nogil=True, inline="always")
def class_at(data, at, table):
    """Return the class (uint64) and the number of bytes of the code point at a position."""
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
    """Return the end of the match at `start`, or `start` if no match or an empty match begins
    there."""
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
    """Cut data[start:end] into pieces and append their ends to `ends`; return the new count of
    ends. data: uint8[], valid UTF-8; ends: int64[], with room for one piece per code point."""
    at = start
    unmatched = False  # the text before `at` is not in a match
    while at < end:
        z = match_at(data, at, end, table)
        if z == at:
            _, size = class_at(data, at, table)
            at += size
            unmatched = True
            continue
        if unmatched:
            ends[count] = at
            count += 1
            unmatched = False
        if table[5]:
            count = _groups(data, at, z, table[5], ends, count)
        else:
            ends[count] = z
            count += 1
        at = z
    if unmatched:
        ends[count] = end
        count += 1
    return count


@njit(cache=True, nogil=True)
def cut_rows(data, offsets, tables):
    """Cut all rows into pieces. Return the pieces' ends, int64[], and the number of pieces per row,
    int64[rows]. tables: compiled patterns; each cuts the pieces that the one before it makes."""
    size = offsets[-1] - offsets[0]
    ends = np.empty(size, np.int64)
    recut = np.empty(size if len(tables) > 1 else 0, np.int64)
    counts = np.zeros(len(offsets) - 1, np.int64)
    total = np.int64(0)
    for row in range(len(offsets) - 1):
        before = total
        total = cut(data, offsets[row], offsets[row + 1], tables[0], ends, total)
        for k in range(1, len(tables)):
            n = np.int64(0)
            at = offsets[row]
            for p in range(before, total):
                n = cut(data, at, ends[p], tables[k], recut, n)
                at = ends[p]
            for p in range(n):
                ends[before + p] = recut[p]
            total = before + n
        counts[row] = total - before
    return ends[:total], counts


_OPEN, _NO_MATCH, _MATCH = range(3)


@njit(nogil=True, inline="always")
def _match_state(data, start, table):
    """Return _MATCH if the pattern matches at `start` and _NO_MATCH if it does not, whatever text
    follows `data`. Return _OPEN if this depends on the text that follows."""
    steps, ascii_classes, columns = table[0], table[1], np.uint64(table[4])
    at, answer = start, _NO_MATCH
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
def count_final_pieces(data, ends, table):
    """Return the number of pieces that no text after `data` can change. data: uint8[], valid UTF-8,
    the beginning of a text; ends: int64[], the ends of its pieces as `cut` gives them."""
    at = np.int64(0)
    unmatched = np.int64(0)  # 1 after a piece without a match, which extends to the next match
    for piece in range(len(ends)):
        answer = _NO_MATCH
        while at < ends[piece] and answer == _NO_MATCH:
            answer = _match_state(data, at, table)
            if answer == _OPEN:
                return piece - unmatched
            _, size = class_at(data, at, table)
            at += size
        at, unmatched = ends[piece], np.int64(answer == _NO_MATCH)
    return len(ends) - unmatched
