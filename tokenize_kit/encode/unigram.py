"""Unigram: the pieces of greatest summed score that spell a text, as the libraries choose them.

From left to right every position keeps the best path to it; a later path must be strictly better to
replace an earlier one. A character that no piece spells alone costs the least score less ten.
SentencePiece sums in float32 over a whole text, so that rounding may decide between near paths
(src/unigram_model.cc, Model::EncodeOptimized); `tokenizers` sums in float64, word by word.

A cached word has its path, computed by exact sums, and how large the sum of the text before it may
be for rounding to leave that path the best. Only where that sum is larger, sums are made in float32
as SentencePiece makes them.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from tokenize_kit.encode.trie import build_character_trie, make_alphabet, number_characters
from tokenize_kit.encode.words import (
    BATCH,
    END,
    HIGH,
    LONGEST,
    LOW,
    add_word,
    cut_words,
    join_unknown,
    longest_row,
    recall_words,
    write_fallback,
)

RESET = 100_000.0  # sums beyond it are moved to 0 (unigram_model.cc, 0.2.3)
PENALTY = 10.0  # below the least score, of a character without a piece
UNKNOWN = -1  # a token, of a character without a piece
_NOTHING = -np.inf

# alphabet: of trie.py; slots, values: a trie, one cache line a step: int32[4 a slot] and the
# same memory as float64[2 a slot]: the base of a slot's children, its parent (-1 at the root), the
# score of the token that ends there, -inf for none; token_at: int32[slots]: that token; longest:
# characters of the longest one; lacking: the score of a character without a piece; sums:
# float32[ids]: what an id adds to the sum of a text, where a character without a piece may be
# several ids; rounds: whether sums are those of float32; exact: they have no rounding errors all
# the same; worst: the largest score, without sign.
Unigram = namedtuple(
    "Unigram", "alphabet slots values token_at longest lacking sums rounds exact worst"
)
# Arrays for n characters. numbers, positions: int32[n + 1], of number_characters; sums, gaps:
# float64[n + 1]: of every position the best way's sum, and by how much it is better than the second
# best; starts, lasts: int32[n + 1]: where the last token of the best way begins, and its slot,
# UNKNOWN for none; path, ends: int32[n]; words: of words.cut_words.
Work = namedtuple("Work", "numbers positions sums gaps starts lasts path ends words")
_1, _2 = np.uint64(1), np.uint64(2)


def make_unigram(
    pieces: dict[str, int],
    scores: np.ndarray,
    sums: np.ndarray,
    lacking: float,
    *,
    rounds: bool,
    exact: bool,
) -> Unigram:
    """pieces: text to id, those that a text may give; scores: float64[ids]. Raises ValueError for
    pieces that no table holds."""
    used = np.array([*pieces.values()], np.int64)
    alphabet, size = make_alphabet([*pieces])
    links, token_at = build_character_trie(alphabet, size, [*pieces], used)
    slots = np.empty((len(token_at), 4), np.int32)
    slots[:, :2] = links
    slots[slots[:, 1] == 0, 1] = -1
    values = slots.view(np.float64)
    values[:, 1] = np.where(token_at >= 0, np.append(scores, _NOTHING)[token_at], _NOTHING)
    worst = max(float(np.abs(scores[used]).max(initial=0)), abs(lacking))
    longest = max(map(len, pieces), default=1)
    return Unigram(
        alphabet,
        slots.ravel(),
        values.ravel(),
        token_at,
        longest,
        lacking,
        sums,
        rounds,
        exact,
        worst,
    )


@njit(nogil=True)
def best_path(unigram, rounds, work, n, total):
    """The best path of n characters by sums that begin at `total`; returns its sum.

    rounds: whether sums are those of float32. One of float64 that is rounded to it is the same
    number, for float64 has more than twice as many digits.
    """
    slots, values, numbers = unigram.slots, unigram.values, work.numbers
    sums, gaps, starts, lasts = work.sums, work.gaps, work.starts, work.lasts
    for k in range(1, n + 1):
        sums[k] = _NOTHING
        gaps[k] = np.inf
    sums[0] = total
    numbers[n] = 0  # no token goes on there
    for at in range(n):
        i = np.uint64(at)
        sum_before = sums[i]
        if rounds and abs(sum_before) > RESET:
            for k in range(at, min(at + unigram.longest, n) + 1):
                sums[k] = np.float64(np.float32(sums[k] - sum_before))
            sum_before = 0.0
        slot = np.uint64(numbers[i])
        score, last = values[slot << _1 | _1], np.int32(slot)
        if score == _NOTHING:
            score, last = unigram.lacking, np.int32(UNKNOWN)
        end = i + _1
        while True:
            if score > _NOTHING:
                way = sum_before + score
                if rounds:
                    way = np.float64(np.float32(way))
                best = sums[end]
                if way > best:
                    gaps[end] = way - best
                    sums[end] = way
                    starts[end] = np.int32(i)
                    lasts[end] = last
                elif best - way < gaps[end]:
                    gaps[end] = best - way
            child = np.uint64(np.uint32(slots[slot << _2])) + np.uint64(np.uint32(numbers[end]))
            if slots[child << _2 | _1] != np.int32(slot):
                break
            slot, last = child, np.int32(child)
            score = values[slot << _1 | _1]
            end += _1
    return sums[n]


@njit(nogil=True)
def trace_path(token_at, work, n):
    """The tokens of the best way and the characters they end at, to the ends of path[:n], ends[:n].

    token_at: of a Unigram. Returns (where they begin, by how much that way is better than any
    other, whether it has characters without a piece).
    """
    first, at, margin, lacks = n, n, np.inf, False
    while at > 0:
        first -= 1
        slot = np.int64(work.lasts[at])
        if slot < 0:
            work.path[first] = UNKNOWN
            lacks = True
        else:
            work.path[first] = token_at[slot]
        work.ends[first] = at
        margin = min(margin, work.gaps[at])
        at = np.int64(work.starts[at])
    return first, margin, lacks


_ALWAYS = np.int64((1 << 32) - 1)


@njit(nogil=True)
def _safe_below(margin, n, worst):
    """The limit of the sum before a word of n characters, below which rounding changes nothing.

    Sums below 2**E are rounded by 2**(E - 25) at most, once for each of n tokens at most, on either
    path; twice that much is allowed for. worst: of a Unigram.
    """
    return np.int64(min(max(margin * 2.0**22 / n - 2 * n * worst, 0.0), 1e9))


@njit(nogil=True)
def _encode_word(data, a, z, unigram, fallback, rounds, total, work, out, w):
    """Appends the ids of data[a:z] to out[:w], by sums that begin at `total`.

    Returns (the new length, the new sum, by how much the path is better, characters).
    """
    n = number_characters(unigram.alphabet, data, a, z, work.numbers, work.positions)
    total = best_path(unigram, rounds, work, n, total)
    first, margin, lacks = trace_path(unigram.token_at, work, n)
    if not lacks:
        for k in range(first, n):
            out[w + k - first] = work.path[k]
        return w + n - first, total, margin, n
    before = w
    for k in range(first, n):
        if work.path[k] >= 0:
            out[w] = work.path[k]
            w += 1
        else:
            w = write_fallback(
                fallback, data, a + np.int64(work.positions[work.ends[k] - 1]), out, w
            )
    if not fallback.joined:
        w = join_unknown(fallback.unknown, out, before, w)
    return w, total, margin, n


@njit(nogil=True)
def _encode_rows(data, offsets, unigram, fallback, crossed, cache, work, own, out, sizes):
    """Writes the ids of all rows to out, their number to sizes; returns how many there are."""
    w = np.int64(0)
    sums, rounds = unigram.sums, unigram.rounds
    calm = RESET - LONGEST * unigram.worst  # below it no sum within a word comes to be reset
    exactly = np.bool_(0)  # a literal would have numba compile _word anew
    for row in range(len(sizes)):
        a, row_end, before = np.int64(offsets[row]), np.int64(offsets[row + 1]), w
        total = np.float32(0)
        while a < row_end:
            count = cut_words(data, a, row_end, crossed, cache, work.words)
            k = np.int64(0)
            while True:
                k, a, slot, w, total = recall_words(
                    data, a, work.words, k, count, cache, sums, rounds, total, calm, out, w
                )
                if k == count:
                    break
                z = np.int64(work.words[k, END])
                k += 1
                low, high = work.words[k - 1, LOW], work.words[k - 1, HIGH]
                if high != 0 and cache.entries[slot, 1] == 0:
                    m, _, margin, n = _encode_word(
                        data, a, z, unigram, fallback, exactly, 0.0, work, own, np.int64(0)
                    )
                    if m <= LONGEST:
                        safe = _ALWAYS
                        if rounds and not unigram.exact:
                            safe = _safe_below(margin, n, unigram.worst)
                        add_word(cache, slot, low, high, data, a, z, own, m, safe)
                        k -= 1  # known now, if not safe
                        if not rounds or abs(np.float64(total)) < min(calm, np.float64(safe)):
                            continue
                        k += 1
                w, summed, _, _ = _encode_word(
                    data, a, z, unigram, fallback, rounds, np.float64(total), work, out, w
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
    most = longest_row(offsets, LONGEST)
    own = np.empty(4 * LONGEST, np.uint32)
    work = Work(
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
    w = _encode_rows(data, offsets, unigram, fallback, crossed, cache, work, own, out, sizes)
    return out[:w], sizes
