"""Cutting UTF-8 text by a compiled pattern: every match is a piece, and so is what lies between.

That is `Split(pattern, "isolated")` of `tokenizers`, and what tiktoken does where a pattern leaves
nothing out.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, inline="always")
def class_at(data, at, ascii_classes, pages, blocks):
    """(class, bytes) of the code point at a place of valid UTF-8."""
    b = np.int64(data[at])
    if b < 0x80:
        return np.int64(ascii_classes[b]), 1
    if b < 0xE0:
        code_point, size = (b & 0x1F) << 6 | (np.int64(data[at + 1]) & 0x3F), 2
    elif b < 0xF0:
        code_point = (
            (b & 0x0F) << 12
            | (np.int64(data[at + 1]) & 0x3F) << 6
            | (np.int64(data[at + 2]) & 0x3F)
        )
        size = 3
    else:
        code_point = (
            (b & 0x07) << 18
            | (np.int64(data[at + 1]) & 0x3F) << 12
            | (np.int64(data[at + 2]) & 0x3F) << 6
            | (np.int64(data[at + 3]) & 0x3F)
        )
        size = 4
    return np.int64(blocks[pages[code_point >> 8], code_point & 0xFF]), size


@njit(nogil=True, inline="always")
def match_at(data, start, end, table):
    """The end of the match that begins at `start`, or `start` where none does (or an empty one)."""
    steps, ascii_classes, pages, blocks = table
    last_class = steps.shape[1] - 1
    state = np.int64(1)
    at, found = start, start
    while True:
        if at < end:
            kind, size = class_at(data, at, ascii_classes, pages, blocks)
        else:
            kind, size = last_class, 0
        step = np.int64(steps[state, kind])
        if step & 1:
            found = at
        state = step >> 1
        if state == 0 or size == 0:
            return found
        at += size


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
            _, size = class_at(data, at, table[1], table[2], table[3])
            at += size
            loose = True
            continue
        if loose:
            ends[count] = at
            count += 1
            loose = False
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
    total = 0
    for row in range(len(offsets) - 1):
        before = total
        total = cut(data, offsets[row], offsets[row + 1], tables[0], ends, total)
        for k in range(1, len(tables)):
            n = 0
            at = offsets[row]
            for p in range(before, total):
                n = cut(data, at, ends[p], tables[k], again, n)
                at = ends[p]
            for p in range(n):
                ends[before + p] = again[p]
            total = before + n
        counts[row] = total - before
    return ends[:total], counts
