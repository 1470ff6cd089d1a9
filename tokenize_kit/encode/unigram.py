"""Unigram: split a text into the pieces with the greatest sum of scores, as SentencePiece and
`tokenizers` do.

From left to right each position keeps its best path; a later path replaces it only if it is
strictly better. A character without a piece costs the lowest score minus ten. SentencePiece sums in
float32 over a whole text, so that rounding may decide between close paths (src/unigram_model.cc,
Model::EncodeOptimized); `tokenizers` sums in float64, word by word.

The cache stores a word's path, computed with exact sums, and a limit. If the sum of the scores
before the word is below the limit, rounding cannot change the path. Above the limit, the path is
computed again with sums in float32, as in SentencePiece.
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

RESET = 100_000.0  # larger sums are reset to 0 (unigram_model.cc, 0.2.3)
PENALTY = 10.0  # a character without a piece scores this much below the lowest score
UNKNOWN = -1  # the token of a character without a piece
_NOTHING = -np.inf

# alphabet: of trie.py; slots, values: a trie, one cache line per step: int32[4 per slot] and the
# same memory as float64[2 per slot]: the base of a slot's children, its parent (-1 at the root),
# the score of the token that ends there or -inf; token_at: int32[slots]: that token; longest:
# characters of the longest token; lacking: score of a character without a piece; sums:
# float32[ids]: amount that an id adds to the sum of a text (a character without a piece may be
# several ids); rounds: sums are float32; exact: rounding never changes a sum; worst: the
# largest absolute score.
Unigram = namedtuple(
    "Unigram", "alphabet slots values token_at longest lacking sums rounds exact worst"
)
# Buffers for n characters. numbers, positions: int32[n + 1], of number_characters; sums, gaps:
# float64[n + 1]: for each position the sum of the best path and its margin to the second best;
# starts, lasts: int32[n + 1]: start and slot (or UNKNOWN) of the last token of the best path; path,
# ends: int32[n]; words: of words.cut_words.
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
    """Build the tables of a Unigram. pieces: {text: id} of the pieces that encoding may output;
    scores: float64[ids]; the other arguments: fields of Unigram. Raises ValueError if the pieces do
    not fit into a table."""
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
    """Find the best path of n characters; return the sum of its scores, added to `total`. rounds:
    True if each sum is computed in float64 and then rounded to float32. This gives exactly
    SentencePiece's sums in float32, since float64 has more than twice as many digits."""
    slots, values, numbers = unigram.slots, unigram.values, work.numbers
    sums, gaps, starts, lasts = work.sums, work.gaps, work.starts, work.lasts
    for k in range(1, n + 1):
        sums[k] = _NOTHING
        gaps[k] = np.inf
    sums[0] = total
    numbers[n] = 0  # no token continues here
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
    """Write the best path of n characters to work.path (tokens) and work.ends (characters up to
    each token's end); the last token is at index n - 1. Return (index of the first token, margin to
    the second-best path, True if characters lack a piece). token_at: the token at each trie
    slot."""
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
    """Return a limit for the absolute sum of scores before a word. If the sum is below the limit,
    rounding cannot change the word's path. Sums smaller than 2**E are rounded by at most 2**(E-25),
    at most n times on each of two paths; below the limit, twice this error is <= `margin`. margin:
    how much better the path is than the second-best; n: the word's characters; worst: the largest
    absolute score."""
    return np.int64(min(max(margin * 2.0**22 / n - 2 * n * worst, 0.0), 1e9))


@njit(nogil=True)
def _encode_word(data, a, z, unigram, fallback, rounds, total, work, out, w):
    n = number_characters(unigram.alphabet, data, a, z, work.numbers, work.positions)
    total = best_path(unigram, rounds, work, n, total)
    first, margin, lacks = trace_path(unigram.token_at, work, n)
    if not lacks:
        for k in range(first, n):
            out[w + k - first] = work.path[k]
        end = w + n - first
        if not fallback.joined:  # a text may spell the unknown token
            end = join_unknown(fallback.unknown, out, w, end)
        return end, total, margin, n
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
    w = np.int64(0)
    sums, rounds = unigram.sums, unigram.rounds
    calm = RESET - LONGEST * unigram.worst  # below it no sum is reset within a word
    exactly = np.bool_(0)  # a literal would make numba compile _encode_word again
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
                        k -= 1  # the word is cached now, but its path may be unsafe here
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
    """Encode normalized rows; return (ids: uint32[], number of ids per row: int64[rows]). width:
    the largest number of ids per byte."""
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
