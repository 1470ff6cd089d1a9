"""Count repeated lines, paragraphs and word n-grams within a document, as numba kernels.

Pieces count as equal if the 64-bit hashes of their bytes are equal. An n-gram can be repeated only
if both of its (n-1)-grams are repeated, so each pass reads only what the pass before found
repeated. In prose a quarter of the words are left after n = 2, and almost none from n = 5 on.
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
# UNION: the characters of every word that is in a repeated n-gram, each word once.
# GREEDY: from left to right; an n-gram that occurred before is counted and skipped whole.
# EVERY: every occurrence of a repeated n-gram, so overlaps count several times.
UNION, GREEDY, EVERY = range(3)
TOP = 4  # up to this n, count the most frequent n-gram; above it, all duplicates
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_ONE = np.uint64(1)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return float64[rows]: part / whole, and 0 in rows where `whole` is 0."""
    return np.divide(part, whole, out=np.zeros(len(part), np.float64), where=whole > 0)


@njit(nogil=True)
def _table_bits(n):
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
    """Return two arrays int64[rows]: the numbers of duplicate pieces and of their characters. If
    `firsts`, all occurrences of a repeated piece count, otherwise all but the first."""
    data, _ = docs.buffers()
    counts = _duplicates(data, pieces.rows, pieces.start, pieces.end, firsts)
    return counts[:, 0], counts[:, 1]


@njit(cache=True, nogil=True)
def piece_chars(data, rows, start, end):
    """Return int64[rows]: the number of code points in all pieces of each row."""
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
    # Candidates for repeated n-grams: position in the row, hash so far, slot in the table.
    where = np.empty(most + 1, np.int64)
    value = np.empty(most + 1, np.uint64)
    place = np.empty(most + 1, np.int64)
    for r in range(n_rows):
        base = rows[r]
        words = rows[r + 1] - base
        candidates = words
        for p in range(words):
            where[p] = p
            value[p] = hashes[base + p]
        nth = np.int64(0)  # index into sizes
        for n in range(2, sizes[8] + 1):
            if words < n or (candidates == 0 and nth > 2):
                break
            # Keep the candidates whose two (n-1)-grams both repeat.
            kept = np.int64(0)
            for c in range(candidates - 1):
                p = where[c]
                longer = value[c] * _K2 + hashes[base + p + n - 1] if p + n <= words else _ONE
                follows = where[c + 1] == p + 1
                where[kept] = p
                value[kept] = longer
                kept += follows
            candidates = kept
            if candidates > 1:
                bits = _table_bits(candidates)
                shift = np.uint64(64 - bits)
                mask = np.uint64((1 << bits) - 1)
                keys[: 1 << bits] = 0
                counts[: 1 << bits] = 0
                for c in range(candidates):
                    key = value[c] | _ONE
                    slot = (key * _K1) >> shift
                    while keys[slot] != 0 and keys[slot] != key:
                        slot = (slot + _ONE) & mask
                    keys[slot] = key
                    counts[slot] += 1
                    place[c] = slot
                kept = np.int64(0)
                for c in range(candidates):
                    slot = place[c]
                    where[kept], value[kept], place[kept] = where[c], value[c], slot
                    kept += counts[slot] > 1
                candidates = kept
            else:
                candidates = 0
            if n != sizes[nth]:
                continue
            nth += 1
            if nth <= 3:
                best, size_of_best = 1, np.int64(0)
                if candidates == 0 and singles:
                    size_of_best = _window(chars, base, n)
                for c in range(candidates):
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
                for c in range(candidates):
                    a = max(where[c], covered)
                    covered = where[c] + n
                    out[r, nth - 1] += _window(chars, base + a, covered - a)
            elif way == EVERY:
                for c in range(candidates):
                    out[r, nth - 1] += _window(chars, base + where[c], n)
            else:
                free = np.int64(0)  # the first word that is not skipped
                for c in range(candidates):
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
    """Return int64[rows, 9]: the number of characters in repeated n-grams of n = 2 to 10 words.

    For n up to 4, only the most frequent n-gram counts: its length times its number. Of several
    equally frequent n-grams, the longest counts if `longest`, else the first. `spaces` adds one
    space between words. If no n-gram is repeated, the first n-gram counts if `singles`. For larger
    n, all repeated n-grams count. If they overlap, `way` decides: UNION counts a character once,
    EVERY counts all n-grams, GREEDY leaves out first occurrences and n-grams that overlap the last
    n-gram counted. `per_word` is the number of tokens per word.
    """
    sizes = np.floor(per_word * np.array(N_GRAMS) + 0.5).astype(np.int64)
    return _n_grams(tokens.rows, tokens.hash, tokens.chars, way, longest, spaces, singles, sizes)


@njit(cache=True, nogil=True)
def all_n_gram_chars(rows, chars):
    """Return int64[rows, 9]: characters in all n-grams, which overlap, for n from 2 to 10."""
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
    """Return int32[pieces]: the last character of every piece, -1 for an empty one."""
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
    """Return int64[rows]: the most consecutive copies of a sequence of 1 to `periods` tokens, 1 if
    none is repeated, 0 without tokens. `hashes` (uint64[tokens]) of row r begin at rows[r]."""
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
    """Return bool[pieces]: True for a piece of at most `most` characters."""
    # A character has one to four bytes, so most pieces are judged by their size alone.
    size = end - start
    short: np.ndarray = size <= most
    between = np.flatnonzero(~short & (size <= 4 * most))
    each = np.arange(len(between) + 1)
    short[between] = piece_chars(data, each, start[between], end[between]) <= most
    return short
