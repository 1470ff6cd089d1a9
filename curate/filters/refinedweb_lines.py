"""RefinedWeb's line rules over a batch: which lines and parts of lines go, in either reading."""

from __future__ import annotations

import numpy as np
from numba import njit

from curate.filters.refinedweb_kernel import (
    _ANYWHERE,
    _COUNTER,
    _END,
    _NUMERIC,
    _ONE_WORD,
    _SPACE,
    _START,
    _UPPERCASE,
    _classes,
    _count_words,
    _cut_anywhere,
    _cut_at,
    _drop_line,
    _ends,
    _is_counter,
    _words_left,
    _written,
)
from curate.text.cutting import mark_ends
from curate.text.pieces import strip_space

_ALL = 1 << 62


@njit(cache=True, nogil=True)
def _longest(start, end):
    longest = np.int64(0)
    for k in range(len(start)):
        longest = max(longest, end[k] - start[k])
    return longest


@njit(cache=True, nogil=True)
def judge_dclm(data, offsets, rows, start, end, flags, limits, most, any_, ends, starts, mark):
    """Marks what DCLM's modifiers cut; limits: (max_uppercase, max_numeric); most: words of a short
    line; any_, ends, starts: patterns as (uint8[], int64[n + 1]).

    Returns int64[rows, 5]: lines dropped, lines edited, words before, words gone, bytes left.
    """
    base = offsets[0]
    n_rows = len(offsets) - 1
    out = np.zeros((n_rows, 5), np.int64)
    verdict = np.zeros(len(start), np.uint8)
    edited = np.zeros(len(start), np.bool_)
    line = np.empty(_longest(start, end), np.uint8)
    where = np.empty(len(line), np.int64)
    short = np.empty(len(start), np.int64)
    for r in range(n_rows):
        first, stop = rows[r], rows[r + 1]
        top, bottom = offsets[r], offsets[r + 1]
        maybe_numeric = False
        for k in range(first, stop):
            chars, upper, digits, _ = _classes(data, start[k], end[k], flags)
            if chars and upper / chars > limits[0]:
                verdict[k] = _UPPERCASE
            maybe_numeric |= digits > 0
        if maybe_numeric:
            low, high = _ends(data, first, stop, start, end, verdict, mark, base)
            for k in range(first, stop):
                a, z = start[k], end[k]
                if verdict[k] or a == z:
                    continue
                # The page has been stripped by now.
                if k == low or k == high:
                    one, two = strip_space(data, a, z)
                    a = one if k == low else a
                    z = two if k == high else z
                chars, _, digits, _ = _classes(data, a, z, flags)
                if chars and digits / chars > limits[1]:
                    verdict[k] = _NUMERIC
                elif digits and _is_counter(data, a, z, flags, False):
                    verdict[k] = _COUNTER
        for k in range(first, stop):
            short[k] = most + 1
            if verdict[k] == 0 and end[k] > start[k]:
                short[k] = _count_words(data, start[k], end[k], most + 1)
                if short[k] < 2:
                    verdict[k] = _ONE_WORD if short[k] else _SPACE
            if verdict[k]:
                _drop_line(k, start, end, bottom, mark, base, verdict[k])
                short[k] = most + 1
        for k in range(first, stop):
            if short[k] <= most:
                a, z = start[k], end[k]
                if _cut_anywhere(data, a, z, any_[0], any_[1], True, mark, base):
                    edited[k] = True
                    if not _written(data, a, z, mark, base):
                        verdict[k] = _ANYWHERE
                        _drop_line(k, start, end, bottom, mark, base, _ANYWHERE)
        for rule in (_END, _START):
            low, high = _ends(data, first, stop, start, end, verdict, mark, base)
            text, at = ends if rule == _END else starts
            for k in range(first, stop):
                if verdict[k] or short[k] > most:
                    continue
                a, z = start[k], end[k]
                if k == low or k == high:
                    one, two = strip_space(data, a, z)
                    a = one if k == low else a
                    z = two if k == high else z
                hit, left = _cut_at(
                    rule, data, a, z, mark, base, line, where, text, at, True, most, False
                )
                if hit:
                    edited[k] = True
                    if left == 0:
                        verdict[k] = rule
                        _drop_line(k, start, end, bottom, mark, base, rule)
        for k in range(first, stop):
            out[r, 0] += verdict[k] > 0
            out[r, 1] += edited[k] and verdict[k] == 0
        out[r, 4] = mark_ends(data, top, bottom, mark, base, _SPACE)
        left = _words_left(data, top, bottom, mark, base, flags)
        out[r, 2] = left
        if out[r, 0] or out[r, 1]:
            none = np.zeros(bottom - top, np.uint8)
            out[r, 2] = _words_left(data, top, bottom, none, top, flags)
            out[r, 3] = out[r, 2] - left
    return out


@njit(cache=True, nogil=True)
def judge_paper(data, offsets, rows, start, end, flags, limits, most, any_, ends, starts, mark):
    """The same in our reading of the paper: a line is judged once, by its characters that are no
    white space, and all words of a flagged line count as gone."""
    base = offsets[0]
    n_rows = len(offsets) - 1
    out = np.zeros((n_rows, 5), np.int64)
    line = np.empty(_longest(start, end), np.uint8)
    where = np.empty(len(line), np.int64)
    for r in range(n_rows):
        bottom = offsets[r + 1]
        for k in range(rows[r], rows[r + 1]):
            a, z = strip_space(data, start[k], end[k])
            if a == z:
                continue
            words = _count_words(data, a, z, _ALL)
            out[r, 2] += words
            chars, upper, digits, spaces = _classes(data, a, z, flags)
            written = chars - spaces
            rule = 0
            if upper / written > limits[0]:
                rule = _UPPERCASE
            elif digits / written > limits[1]:
                rule = _NUMERIC
            elif digits and _is_counter(data, a, z, flags, True):
                rule = _COUNTER
            elif words == 1:
                rule = _ONE_WORD
            cuts = 0
            if rule == 0 and words <= most:
                cuts = _cut_anywhere(data, a, z, any_[0], any_[1], False, mark, base)
                last = _ANYWHERE
                for edge in (_END, _START):
                    text, at = ends if edge == _END else starts
                    hit, _ = _cut_at(
                        edge, data, a, z, mark, base, line, where, text, at, False, most, True
                    )
                    cuts += hit
                    last = edge if hit else last
                if cuts and not _written(data, a, z, mark, base):
                    rule = last
            if rule:
                _drop_line(k, start, end, bottom, mark, base, rule)
                out[r, 0] += 1
            elif cuts:
                out[r, 1] += 1
            if rule or cuts:
                out[r, 3] += words
        out[r, 4] = bottom - offsets[r]
        if out[r, 0] or out[r, 1]:
            out[r, 4] = mark_ends(data, offsets[r], bottom, mark, base, _SPACE)
    return out
