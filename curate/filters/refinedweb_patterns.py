"""Patterns in short lines, such as "items in cart", as RefinedWeb's rules cut them."""

from __future__ import annotations

import numpy as np

from curate.filters.refinedweb_kernel import ANYWHERE, END, count_words, small_letter
from curate.text.pieces import strip_space
from curate.text.unicode import char_bytes, space_bytes
from kernel_cache import njit


@njit(nogil=True)
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
        found, n = small_letter(data, i, end, True)
        if found != want:
            return -1
        i += n
    return i


@njit(nogil=True)
def _space_before(data, i, a):
    """Where the white space character before i begins, i if there is none in data[a:i]."""
    k = i - 1
    while k > a and (data[k] & 0xC0) == 0x80:
        k -= 1
    return k if k >= a and space_bytes(data, k, i) == i - k else i


@njit(nogil=True)
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
            for k in range(_space_before(data, i, after), stop):
                mark[k - base] = ANYWHERE
            cuts += 1
            i = after = stop
        else:
            i += 1
    return cuts


@njit(nogil=True)
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


@njit(nogil=True)
def _pattern_at_start(line, first, size, text, at, wild):
    """(start, end) of a pattern at the start of line[first:size], and of a white space after it."""
    for p in range(len(at) - 1):
        stop = _match(line, first, size, text, at[p], at[p + 1], wild)
        if stop > first:
            if stop < size:
                stop += space_bytes(line, stop, size)
            return first, stop
    return first, first


@njit(nogil=True)
def _left_of(data, a, z, mark, base, line, where):
    """Copies what is not marked of data[a:z] to line, and its places to where; returns its size."""
    n = 0
    for i in range(a, z):
        if mark[i - base] == 0:
            line[n] = data[i]
            where[n] = i
            n += 1
    return n


@njit(nogil=True)
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


@njit(nogil=True)
def cut_at_edge(rule, data, a, z, mark, base, edited, line, where, patterns, wild, most, low, high):
    """Marks a pattern at the end or at the start of a short line; returns whether there was one.
    edited: whether some of the line is marked already."""
    if not edited:
        one, two = _find_at(rule, data, a, z, patterns, wild, low, high)
        for i in range(one, two):
            mark[i - base] = rule
        return one < two
    n = _left_of(data, a, z, mark, base, line, where)
    if n == 0 or count_words(line, np.int64(0), n) > most:
        return False
    one, two = _find_at(rule, line, np.int64(0), n, patterns, wild, low, high)
    for i in range(one, two):
        mark[where[i] - base] = rule
    return one < two
