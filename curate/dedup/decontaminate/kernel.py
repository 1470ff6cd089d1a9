"""Search for the windows of an evaluation set in documents, in one pass over their units.

A unit is a word (its hash in the word table) or a letter or digit; a window is a run of units. One
rolling hash over the shortest length asks a filter of a few bits a window; what passes is looked up
in a sorted list, which says how long the windows are that begin so, and their whole hash decides.
Hashes have 64 bits: k windows searched in a corpus of n units give about k * n / 2^64 false hits,
one in 18 million for a million windows and 10^6 units, one in 18 for 10^12.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from curate.text.hashing import mix
from curate.text.unicode import char_bytes, code_point
from curate.text.words import CONNECTOR, OTHER, character_tables
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import place_of

BASE = np.uint64(0x9E3779B97F4A7C15)
BLOCK = 1 << 15  # characters of a document that are looked at together
_ONE, _SIX, _63 = np.uint64(1), np.uint64(6), np.uint64(63)


@lru_cache(maxsize=1)
def character_values() -> np.ndarray:
    """uint64[0x110000]: what a character counts as: 0 for one that is passed over, else a number
    of its lower case. Letters, digits and the marks on them count."""
    kinds, lower = character_tables()
    values = _mixed(lower.astype(np.uint64) + _ONE)
    values[(kinds == OTHER) | (kinds == CONNECTOR)] = 0
    return values


@njit(cache=True, nogil=True)
def _mixed(codes):
    out = np.empty_like(codes)
    for k in range(len(codes)):
        out[k] = mix(codes[k])
    return out


@njit(nogil=True)
def _fill(data, i, stop, table, values, start, end, filled):
    """Puts the characters of data[i:stop] that count behind the first `filled` ones until the
    arrays are full; returns (where to go on, filled)."""
    capacity = len(values)
    while i < stop and filled < capacity:
        b = data[i]
        code, n = np.int64(b), 1
        if b >= 0x80:
            code, n = np.int64(code_point(data, i, stop)), char_bytes(b)
            if code < 0 or code > 0x10FFFF:
                code = np.int64(0)
        value = table[code]
        if value != 0:
            values[filled], start[filled], end[filled] = value, i, min(i + n, stop)
            filled += 1
        i += n
    return i, filled


@njit(cache=True, nogil=True)
def characters(data, offsets, table):
    """(rows: int64[rows + 1], values: uint64[units], start, end: int64[units]): the characters of
    short texts that count, in absolute byte positions."""
    size = offsets[-1] - offsets[0]
    rows = np.zeros(len(offsets), np.int64)
    values = np.empty(size, np.uint64)
    start, end = np.empty(size, np.int64), np.empty(size, np.int64)
    filled = np.int64(0)
    for r in range(len(offsets) - 1):
        _, filled = _fill(data, offsets[r], offsets[r + 1], table, values, start, end, filled)
        rows[r + 1] = filled
    return rows, values[:filled], start[:filled], end[:filled]


@njit(nogil=True)
def _finished(value, length):
    """The key of a window from the running hash of its units and their number."""
    return mix(value ^ (np.uint64(length) * BASE))


@njit(cache=True, nogil=True)
def window_hashes(values, at, length, least):
    """(begin, key: uint64[windows]): the running hash of the first `least` units and the key of
    each window values[at[k] : at[k] + length[k]]."""
    begin = np.empty(len(at), np.uint64)
    key = np.empty(len(at), np.uint64)
    for k in range(len(at)):
        value = np.uint64(0)
        for i in range(length[k]):
            value = value * BASE + values[at[k] + i]
            if i + 1 == least:
                begin[k] = value
        key[k] = _finished(value, length[k])
    return begin, key


@njit(cache=True, nogil=True)
def number_sorted(values, order):
    """(different: the different values in order, as the first entries; number: int64[n], which of
    them each value is), for an order that sorts the values."""
    different = np.empty_like(values)
    number = np.empty(len(values), np.int64)
    n = -1
    for k in order:
        if n < 0 or different[n] != values[k]:
            n += 1
            different[n] = values[k]
        number[k] = n
    return different, number


@njit(cache=True, nogil=True)
def length_bits(number, longer, count):
    """uint64[count]: bit b is set in entry i where a window of number i has b more units than the
    shortest one."""
    bits = np.zeros(count, np.uint64)
    for k in range(len(number)):
        bits[number[k]] |= _ONE << np.uint64(longer[k])
    return bits


@njit(cache=True, nogil=True)
def first_in_item(rows, gram, grams):
    """bool[windows]: windows that are the first of their kind in their item. rows: int64[items +
    1], the first window of each item; grams: how many kinds there are."""
    last_item = np.full(grams, -1, np.int32)
    first = np.zeros(len(gram), np.bool_)
    for item in range(len(rows) - 1):
        for k in range(rows[item], rows[item + 1]):
            first[k] = last_item[gram[k]] != item
            last_item[gram[k]] = item
    return first


@njit(cache=True, nogil=True)
def filter_bits(begins, shift):
    """uint64[]: one bit for the upper 64 - shift bits of each hash."""
    bits = np.zeros(max(1, (1 << (64 - shift)) >> 6), np.uint64)
    for value in begins:
        bit = value >> np.uint64(shift)
        bits[bit >> _SIX] |= _ONE << (bit & _63)
    return bits


@njit(nogil=True)
def _probe(values, start, end, count, last, row, base, index, hits, n):
    """Writes the hits of windows that start at the first `last` of values[:count] behind the n hits
    that are there; returns how many there are, also where `hits` is too short for them."""
    bits, begins, lengths, keys, shift, least = index
    gram, rows, first, stop = hits
    limit = min(last, count - least + 1)
    if limit <= 0:
        return n
    power = np.uint64(1)
    value = np.uint64(0)
    for k in range(least):
        value = value * BASE + values[k]
        power *= BASE
    i = 0
    while True:
        bit = value >> shift
        if (bits[bit >> _SIX] >> (bit & _63)) & _ONE:
            at = place_of(begins, value)
            if at >= 0:
                more = lengths[at]
                whole = value
                size = least
                while more != 0 and i + size <= count:
                    if more & _ONE:
                        key = place_of(keys, _finished(whole, size))
                        if key >= 0:
                            if n < len(gram):
                                gram[n], rows[n] = key, row
                                first[n], stop[n] = start[i] - base, end[i + size - 1] - base
                            n += 1
                    more >>= _ONE
                    if i + size < count:
                        whole = whole * BASE + values[i + size]
                    size += 1
        i += 1
        if i >= limit:
            return n
        value = value * BASE + values[i + least - 1] - values[i - 1] * power


@njit(cache=True, nogil=True)
def find_words(offsets, rows, values, start, end, index, hits):
    """Hits of windows of words in documents, by position; returns their number, which may be more
    than there is space for.

    rows, values, start, end: the word table; index: bits, begins, lengths, keys, shift, least (see
    windows.py); hits: gram (an index of keys), row, first and last byte behind, as
    int64 arrays of one length, in bytes of the document.
    """
    n = np.int64(0)
    for r in range(len(offsets) - 1):
        a, z = rows[r], rows[r + 1]
        n = _probe(values[a:z], start[a:z], end[a:z], z - a, z - a, r, offsets[r], index, hits, n)
    return n


@njit(cache=True, nogil=True)
def find_characters(data, offsets, table, most, index, hits):
    """The same for windows of characters. most: units of the longest window."""
    n = np.int64(0)
    capacity = BLOCK + most
    values = np.empty(capacity, np.uint64)
    start, end = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    for r in range(len(offsets) - 1):
        i, stop = offsets[r], offsets[r + 1]
        filled = np.int64(0)
        while True:
            i, filled = _fill(data, i, stop, table, values, start, end, filled)
            # Windows that begin among the last ones may be longer than what is here.
            last = filled if i >= stop else filled - most + 1
            n = _probe(values, start, end, filled, last, r, offsets[r], index, hits, n)
            if i >= stop:
                break
            kept = filled - last
            for k in range(kept):
                values[k], start[k], end[k] = values[last + k], start[last + k], end[last + k]
            filled = kept
    return n


@njit(cache=True, nogil=True)
def widen(data, offsets, row, first, last, chars):
    """(first, last: int64[hits]) in bytes of the document, moved apart by that many characters."""
    wide_first, wide_last = np.empty_like(first), np.empty_like(last)
    for k in range(len(row)):
        a, z = offsets[row[k]], offsets[row[k] + 1]
        i = a + first[k]
        missing = chars
        while i > a and missing > 0:
            i -= 1
            missing -= (data[i] & 0xC0) != 0x80
        wide_first[k] = i - a
        i = a + last[k]
        missing = chars
        while i < z and missing > 0:
            i += 1
            while i < z and (data[i] & 0xC0) == 0x80:
                i += 1
            missing -= 1
        wide_last[k] = i - a
    return wide_first, wide_last
