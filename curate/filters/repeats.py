"""Extents and word n-grams that a document repeats, as numba kernels.

Equality is equality of 64-bit hashes of the bytes within one document. An n-gram can repeat only
where both its (n-1)-grams do, so every pass over n looks at what the pass before it left: in prose
a quarter of the words after n = 2, and next to nothing from n = 5 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from curate.filters.tokens import Tokens
from curate.text.lines import Extents
from curate.text.unicode import code_point, count_chars
from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import hash_bytes

if TYPE_CHECKING:
    from curate.documents.documents import Documents

N_GRAMS = tuple(range(2, 11))
# How duplicate n-grams (n >= 5) are counted.
# UNION: characters of all words in a repeated n-gram, each word once.
# GREEDY: from left to right, an n-gram seen before counts and is skipped whole.
# EVERY: every occurrence of a repeated n-gram, overlaps several times.
UNION, GREEDY, EVERY = range(3)
TOP = 4  # up to here the most frequent n-gram counts, from 5 on the duplicate ones
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_ONE = np.uint64(1)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """float64[rows]: part / whole; 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part), np.float64), where=whole > 0)


@njit(nogil=True)
def _table_bits(n):
    """log2 of the slots of a table for n keys, at most half full."""
    bits = 3
    while (1 << bits) < 2 * n:
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def _duplicates(data, rows, start, end, firsts):
    n_rows = len(rows) - 1
    out = np.zeros((n_rows, 2), np.int64)
    most = 1
    for r in range(n_rows):
        most = max(most, rows[r + 1] - rows[r])
    bits = _table_bits(most)
    keys = np.zeros(1 << bits, np.uint64)
    first = np.empty(1 << bits, np.int64)
    for r in range(n_rows):
        count = rows[r + 1] - rows[r]
        if count < 2:
            continue
        bits = _table_bits(count)
        shift = np.uint64(64 - bits)
        mask = np.uint64((1 << bits) - 1)
        keys[: 1 << bits] = 0
        for k in range(rows[r], rows[r + 1]):
            key = hash_bytes(data, start[k], end[k]) | _ONE
            slot = (key * _K1) >> shift
            while keys[slot] != 0 and keys[slot] != key:
                slot = (slot + _ONE) & mask
            if keys[slot] == 0:
                keys[slot] = key
                first[slot] = k
                continue
            chars = count_chars(data, start[k], end[k])
            again = 1
            if firsts and first[slot] >= 0:
                again = 2
                first[slot] = -1
            out[r, 0] += again
            out[r, 1] += again * chars
    return out


def duplicates(docs: Documents, pieces: Extents, firsts: bool) -> tuple[np.ndarray, np.ndarray]:
    """(number: int64[rows], characters: int64[rows]) of pieces that stand more than once: the
    copies behind the first, or every copy."""
    data, _ = docs.buffers()
    counts = _duplicates(data, pieces.rows, pieces.start, pieces.end, firsts)
    return counts[:, 0], counts[:, 1]


@njit(cache=True, nogil=True)
def piece_chars(data, rows, start, end):
    """int64[rows]: code points of all pieces of a row."""
    out = np.zeros(len(rows) - 1, np.int64)
    for r in range(len(rows) - 1):
        for k in range(rows[r], rows[r + 1]):
            out[r] += count_chars(data, start[k], end[k])
    return out


@njit(nogil=True)
def _window(chars, at, n):
    total = np.int64(0)
    for j in range(at, at + n):
        total += chars[j]
    return total


@njit(cache=True, nogil=True)
def _n_grams(rows, hashes, chars, way, longest, spaces, singles, sizes):
    n_rows = len(rows) - 1
    out = np.zeros((n_rows, 9), np.int64)
    most = 1
    for r in range(n_rows):
        most = max(most, rows[r + 1] - rows[r])
    size = 1 << _table_bits(most)
    keys = np.zeros(size, np.uint64)
    counts = np.empty(size, np.int32)
    # Where n-grams may repeat: position in the row, hash so far, slot in the table.
    where = np.empty(most + 1, np.int64)
    value = np.empty(most + 1, np.uint64)
    place = np.empty(most + 1, np.int64)
    for r in range(n_rows):
        base = rows[r]
        words = rows[r + 1] - base
        held = words
        for p in range(words):
            where[p] = p
            value[p] = hashes[base + p]
        nth = np.int64(0)  # of sizes
        for n in range(2, sizes[8] + 1):
            if words < n or (held == 0 and nth > 2):
                break
            # Those whose (n-1)-grams, here and one word on, both repeat.
            kept = np.int64(0)
            for c in range(held - 1):
                p = where[c]
                longer = value[c] * _K2 + hashes[base + p + n - 1] if p + n <= words else _ONE
                follows = where[c + 1] == p + 1
                where[kept] = p
                value[kept] = longer
                kept += follows
            held = kept
            if held > 1:
                bits = _table_bits(held)
                shift = np.uint64(64 - bits)
                mask = np.uint64((1 << bits) - 1)
                keys[: 1 << bits] = 0
                counts[: 1 << bits] = 0
                for c in range(held):
                    key = value[c] | _ONE
                    slot = (key * _K1) >> shift
                    while keys[slot] != 0 and keys[slot] != key:
                        slot = (slot + _ONE) & mask
                    keys[slot] = key
                    counts[slot] += 1
                    place[c] = slot
                kept = np.int64(0)
                for c in range(held):
                    slot = place[c]
                    where[kept], value[kept], place[kept] = where[c], value[c], slot
                    kept += counts[slot] > 1
                held = kept
            else:
                held = 0
            if n != sizes[nth]:
                continue
            nth += 1
            if nth <= 3:
                best, size_of_best = 1, np.int64(0)
                if held == 0 and singles:
                    size_of_best = _window(chars, base, n)
                for c in range(held):
                    count = counts[place[c]]
                    if count > best:
                        best = count
                        size_of_best = _window(chars, base + where[c], n)
                    elif longest and count == best:
                        size_of_best = max(size_of_best, _window(chars, base + where[c], n))
                if size_of_best and spaces:
                    size_of_best += n - 1
                out[r, nth - 1] = best * size_of_best
            elif way == UNION:
                covered = np.int64(0)
                for c in range(held):
                    a = max(where[c], covered)
                    covered = where[c] + n
                    out[r, nth - 1] += _window(chars, base + a, covered - a)
            elif way == EVERY:
                for c in range(held):
                    out[r, nth - 1] += _window(chars, base + where[c], n)
            else:
                free = np.int64(0)  # the first word that is not skipped
                for c in range(held):
                    p = where[c]
                    if p < free:
                        continue
                    if counts[place[c]] < 0:
                        out[r, nth - 1] += _window(chars, base + p, n)
                        free = p + n
                    else:
                        counts[place[c]] = -1
    return out


def n_gram_chars(
    tokens: Tokens,
    way: int,
    longest: bool,
    spaces: bool,
    singles: bool,
    per_word: float = 1.0,
) -> np.ndarray:
    """int64[rows, 9]: characters in the most frequent 2-, 3- and 4-gram, times how often it
    stands there, and in duplicate 5- to 10-grams, counted the given way.

    longest: of equally frequent n-grams the longest, else the first; spaces: one space between its
    words counts; singles: an n-gram that stands there once is the most frequent one, too. per_word:
    tokens in a word, so that an n-gram has that many times n tokens.
    """
    sizes = np.floor(per_word * np.array(N_GRAMS) + 0.5).astype(np.int64)
    return _n_grams(tokens.rows, tokens.hash, tokens.chars, way, longest, spaces, singles, sizes)


@njit(cache=True, nogil=True)
def all_n_gram_chars(rows, chars):
    """int64[rows, 9]: characters of all n-grams of a row, overlaps several times."""
    out = np.zeros((len(rows) - 1, 9), np.int64)
    for r in range(len(rows) - 1):
        for n in range(2, 11):
            if rows[r + 1] - rows[r] < n:
                break
            window = _window(chars, rows[r], n)
            out[r, n - 2] = window
            for p in range(rows[r] + n, rows[r + 1]):
                window += chars[p] - chars[p - n]
                out[r, n - 2] += window
    return out


@njit(cache=True, nogil=True)
def last_code_points(data, start, end):
    """int32[pieces]: the last character of every piece; -1 for an empty one."""
    out = np.full(len(start), -1, np.int32)
    for k in range(len(start)):
        last = end[k]
        while last > start[k]:
            last -= 1
            if (data[last] & 0xC0) != 0x80:
                break
        if start[k] < end[k]:
            out[k] = code_point(data, last, end[k])
    return out


@njit(cache=True, nogil=True)
def longest_repeats(hashes: np.ndarray, rows: np.ndarray, periods: int) -> np.ndarray:
    """int64[rows]: how often the most repeated sequence of up to `periods` tokens stands in a row;
    1 where none follows itself, 0 of no token. hashes: uint64[tokens]; rows: int64[rows + 1]."""
    out = np.zeros(len(rows) - 1, np.int64)
    for r in range(len(out)):
        a, z = rows[r], rows[r + 1]
        out[r] = z > a
        for period in range(1, min(periods, z - a - 1) + 1):
            run = np.int64(0)
            for t in range(a + period, z):
                run = run + 1 if hashes[t] == hashes[t - period] else np.int64(0)
                if run % period == 0 and run // period >= out[r]:
                    out[r] = run // period + 1
    return out


def short_pieces(data: np.ndarray, start: np.ndarray, end: np.ndarray, most: int) -> np.ndarray:
    """bool[pieces]: which of them have at most that many characters."""
    # A character has at most four bytes: only those in between have to be counted.
    size = end - start
    short: np.ndarray = size <= most
    between = np.flatnonzero(~short & (size <= 4 * most))
    each = np.arange(len(between) + 1)
    short[between] = piece_chars(data, each, start[between], end[between]) <= most
    return short
