"""Rows to the ids of a Unigram model, word by word, with a memory of words.

A word that was met has its path, found by exact sums, and how large the sum of the text before it
may be for rounding to leave that path the best. Only where it is larger, sums are made in float32
as SentencePiece makes them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokenize_kit.encode.borders import word_end
from tokenize_kit.encode.characters import number_characters
from tokenize_kit.encode.remembered import look_up, recall
from tokenize_kit.encode.spelling import join_unknown, spell
from tokenize_kit.encode.viterbi import RESET, best_path, best_path_rounded, make_room_for, trace
from tokenize_kit.encode.words import INLINE, LONGEST, remember, seen_before, word_key

_ALWAYS = np.int64(1 << 31)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@njit(nogil=True)
def _safe_below(margin, n, worst):
    """How large a sum before a word of n characters may be, so that rounding changes nothing.

    Sums below 2**E are rounded by 2**(E - 25) at most, once for each of n tokens at most, on either
    path; twice that much is allowed for. worst: of a Unigram.
    """
    return np.int64(min(max(margin * 2.0**22 / n - 2 * n * worst, 0.0), 1e9))


@njit(nogil=True)
def _encode(data, a, row_end, alphabet, unigram, fallback, crossed, cache, room, own, out, w):
    """Appends the ids of data[a:row_end] to out[:w]; returns the new length."""
    entries, letters, ids, used, seen = cache
    low_numbers, blocks, table = alphabet
    trie, scores, rounded, lacking, lacking32, sums, rounds, exact, worst = unigram
    links, found = trie
    numbers, best, best32, gaps, starts, tokens, ends, path = room
    unknown, byte_ids, joined = fallback
    before = w
    total = np.float32(0)
    # Where no sum within a word comes to be reset.
    calm = np.float64(RESET) - LONGEST * worst
    while a < row_end:
        z = word_end(data, a, row_end, crossed)
        known = z - a <= LONGEST
        if known:
            low, high = word_key(data, a, z)
            slot = look_up(entries, letters, low, high, data, a, z)
            known = entries[slot, 1] != 0
            if not known and (z - a <= INLINE or seen_before(seen, low)):
                n = number_characters(low_numbers, blocks, table, data, a, z, numbers)
                margin = best_path(
                    links, found, scores, lacking, numbers, best, gaps, starts, tokens, n
                )
                count = trace(starts, tokens, path, ends, n)
                m = spell(unknown, byte_ids, path, ends, count, data, a, own, np.int64(0))
                if not joined:
                    m = join_unknown(unknown, own, np.int64(0), m)
                if m <= LONGEST:
                    remember(entries, letters, ids, used, slot, low, high, data, a, z, own, m)
                    slot = look_up(entries, letters, low, high, data, a, z)
                    safe = _ALWAYS
                    if rounds and not exact:
                        safe = _safe_below(margin, n, worst)
                    entries[slot, 3] |= np.uint64(safe) << _32
                    known = True
            if known and rounds:
                size = np.float64(abs(total))
                known = size < calm and size < np.float64(entries[slot, 3] >> _32)
            if known:
                first = w
                w = recall(entries, ids, slot, z - a, out, w)
                if rounds:
                    for k in range(first, w):
                        total += sums[out[k]]
        if not known:
            n = number_characters(low_numbers, blocks, table, data, a, z, numbers)
            if rounds:
                total = best_path_rounded(
                    links, found, rounded, lacking32, numbers, best32, starts, tokens, n, total
                )
            else:
                best_path(links, found, scores, lacking, numbers, best, gaps, starts, tokens, n)
            count = trace(starts, tokens, path, ends, n)
            first = w
            w = spell(unknown, byte_ids, path, ends, count, data, a, out, w)
            if not joined:
                w = join_unknown(unknown, out, first, w)
        a = z
    if joined and len(byte_ids) == 0:
        w = join_unknown(unknown, out, before, w)
    return w


@njit(cache=True, nogil=True)
def encode_unigram(data, offsets, alphabet, unigram, fallback, crossed, width, cache):
    """(ids: uint32[], sizes: int64[rows]) of normalised rows.

    width: ids that a byte gives at most.
    """
    out = np.empty((offsets[-1] - offsets[0]) * width, np.uint32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    longest = LONGEST
    for row in range(len(sizes)):
        longest = max(longest, offsets[row + 1] - offsets[row])
    room = make_room_for(longest)
    own = np.empty(4 * LONGEST, np.uint32)
    w = np.int64(0)
    for row in range(len(sizes)):
        a, z = np.int64(offsets[row]), np.int64(offsets[row + 1])
        before = w
        w = _encode(data, a, z, alphabet, unigram, fallback, crossed, cache, room, own, out, w)
        sizes[row] = w - before
    return out[:w], sizes
