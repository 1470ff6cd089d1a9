"""Rows to the ids of a Unigram model, word by word, with a memory of words.

A word that was met has its path, found by exact sums, and how large the sum of the text before it
may be for rounding to leave that path the best. Only where it is larger, sums are made in float32
as SentencePiece makes them.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import njit_bare
from tokenize_kit.encode.characters import number_characters
from tokenize_kit.encode.remembered import BATCH, END, HIGH, LOW, cut_words, known_words
from tokenize_kit.encode.spelling import join_unknown, spell
from tokenize_kit.encode.viterbi import RESET, Room, best_path, trace
from tokenize_kit.encode.words import LONGEST, remember

_ALWAYS = np.int64((1 << 32) - 1)


@njit_bare
def _safe_below(margin, n, worst):
    """How large a sum before a word of n characters may be, so that rounding changes nothing.

    Sums below 2**E are rounded by 2**(E - 25) at most, once for each of n tokens at most, on either
    path; twice that much is allowed for. worst: of a Unigram.
    """
    return np.int64(min(max(margin * 2.0**22 / n - 2 * n * worst, 0.0), 1e9))


@njit_bare
def _word(data, a, z, unigram, fallback, rounds, total, room, out, w):
    """Appends the ids of data[a:z] to out[:w], by sums that begin at `total`.

    Returns (the new length, the new sum, by how much the path is better, characters).
    """
    n = number_characters(unigram.alphabet, data, a, z, room.numbers, room.places)
    total = best_path(unigram, rounds, room, n, total)
    first, margin, lacks = trace(unigram.found, room, n)
    if not lacks:
        for k in range(first, n):
            out[w + k - first] = room.path[k]
        return w + n - first, total, margin, n
    before = w
    for k in range(first, n):
        if room.path[k] >= 0:
            out[w] = room.path[k]
            w += 1
        else:
            w = spell(fallback, data, a + np.int64(room.places[room.ends[k] - 1]), out, w)
    if not fallback.joined:
        w = join_unknown(fallback.unknown, out, before, w)
    return w, total, margin, n


@njit_bare
def _encode(data, offsets, unigram, fallback, crossed, cache, room, own, out, sizes):
    """Writes the ids of all rows to out, their number to sizes; returns how many there are."""
    w = np.int64(0)
    sums, rounds = unigram.sums, unigram.rounds
    calm = RESET - LONGEST * unigram.worst  # below it no sum within a word comes to be reset
    exactly = np.bool_(0)  # a literal would have numba compile _word anew
    for row in range(len(sizes)):
        a, row_end, before = np.int64(offsets[row]), np.int64(offsets[row + 1]), w
        total = np.float32(0)
        while a < row_end:
            count = cut_words(data, a, row_end, crossed, cache, room.words)
            k = np.int64(0)
            while True:
                k, a, slot, w, total = known_words(
                    data, a, room.words, k, count, cache, sums, rounds, total, calm, out, w
                )
                if k == count:
                    break
                z = np.int64(room.words[k, END])
                k += 1
                low, high = room.words[k - 1, LOW], room.words[k - 1, HIGH]
                if high != 0 and cache.entries[slot, 1] == 0:
                    m, _, margin, n = _word(
                        data, a, z, unigram, fallback, exactly, 0.0, room, own, np.int64(0)
                    )
                    if m <= LONGEST:
                        safe = _ALWAYS
                        if rounds and not unigram.exact:
                            safe = _safe_below(margin, n, unigram.worst)
                        remember(cache, slot, low, high, data, a, z, own, m, safe)
                        k -= 1  # known now, if not safe
                        if not rounds or abs(np.float64(total)) < min(calm, np.float64(safe)):
                            continue
                        k += 1
                w, summed, _, _ = _word(
                    data, a, z, unigram, fallback, rounds, np.float64(total), room, out, w
                )
                total = np.float32(summed)
                a = z
        if fallback.joined and len(fallback.bytes) == 0:
            w = join_unknown(fallback.unknown, out, before, w)
        sizes[row] = w - before
    return w


@njit(cache=True, nogil=True)
def encode_unigram(data, offsets, unigram, fallback, crossed, width, cache):
    """(ids: uint32[], sizes: int64[rows]) of normalised rows.

    width: ids that a byte gives at most.
    """
    out = np.empty((offsets[-1] - offsets[0]) * width + 2, np.uint32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    most = LONGEST
    for row in range(len(sizes)):
        most = max(most, offsets[row + 1] - offsets[row])
    own = np.empty(4 * LONGEST, np.uint32)
    room = Room(
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.float64),
        np.empty(most + 1, np.float64),
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty((BATCH, 4), np.uint64),
    )
    w = _encode(data, offsets, unigram, fallback, crossed, cache, room, own, out, sizes)
    return out[:w], sizes
