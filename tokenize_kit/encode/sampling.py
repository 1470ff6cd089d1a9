"""Encode with randomly drawn tokens: by BPE dropout (Provilkov et al. 2020), or by random paths
through a Unigram's lattice (Kudo 2018).

Draws depend only on a document's key and the position in its text. Dropout works as in
`tokenizers`: the possible merges are tried in order of rank, and each is skipped with the given
probability. After a merge is made, skipped merges are tried again. A Unigram's path is drawn with a
chance proportional to (its probability) ** rate, as in SentencePiece with nbest_size -1: sums over
all paths are computed from the end of the text, then pieces are drawn from left to right.
"""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import mix_bits
from tokenize_kit.encode.trie import number_characters
from tokenize_kit.encode.words import (
    join_unknown,
    longest_piece,
    longest_row,
    word_end,
    write_fallback,
)
from tokenize_kit.formats.merges import NO_RANK, rank_of

_STEP = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64
_11 = np.uint64(11)
_1, _2 = np.uint64(1), np.uint64(2)
_ID = np.int64(0xFFFFFFFF)
_NOTHING = -np.inf


@njit(nogil=True)
def _begin(states, key, place):
    states[0] = mix_bits(np.uint64(key) ^ mix_bits(np.uint64(place) + _STEP))


@njit(nogil=True)
def _draw(states):
    states[0] += _STEP
    return np.float64(mix_bits(mix_bits(states[0])) >> _11) * 2.0**-53


@njit(nogil=True)
def _before(values, places, a, b):
    return values[a] < values[b] or (values[a] == values[b] and places[a] < places[b])


@njit(nogil=True)
def _swap(values, places, a, b):
    values[a], values[b] = values[b], values[a]
    places[a], places[b] = places[b], places[a]


@njit(nogil=True)
def _push(values, places, size, value, place):
    values[size], places[size] = value, place
    at = size
    while at > 0 and _before(values, places, at, (at - 1) >> 1):
        _swap(values, places, at, (at - 1) >> 1)
        at = (at - 1) >> 1
    return size + 1


@njit(nogil=True)
def _pop(values, places, size):
    size -= 1
    _swap(values, places, 0, size)
    at = np.int64(0)
    while True:
        child = 2 * at + 1
        if child >= size:
            return size
        if child + 1 < size and _before(values, places, child + 1, child):
            child += 1
        if not _before(values, places, child, at):
            return size
        _swap(values, places, child, at)
        at = child


@njit(nogil=True)
def _merge(pairs, symbols, n, rate, states, waiting, passed, following, preceding):
    values, places = waiting[0], waiting[1]
    size = np.int64(0)
    for k in range(n):
        following[k], preceding[k] = k + 1, k - 1
        if k + 1 < n:
            value = rank_of(pairs, symbols[k], symbols[k + 1])
            if value != NO_RANK:
                size = _push(values, places, size, value, k)
    skipped = np.int64(0)
    while size > 0:
        size = _pop(values, places, size)
        value, at = values[size], places[size]
        if _draw(states) < rate:
            passed[0, skipped], passed[1, skipped] = value, at
            skipped += 1
            continue
        for k in range(skipped):
            size = _push(values, places, size, passed[0, k], passed[1, k])
        skipped = np.int64(0)
        gone = following[at]
        if symbols[at] < 0 or gone >= n:
            continue
        now = rank_of(pairs, symbols[at], symbols[gone])
        if now == NO_RANK or now & _ID != value & _ID:
            continue  # no longer neighbours
        symbols[at], symbols[gone] = value & _ID, -1
        after, front = following[gone], preceding[at]
        following[at] = after
        if after < n:
            preceding[after] = at
            value = rank_of(pairs, symbols[at], symbols[after])
            if value != NO_RANK:
                size = _push(values, places, size, value, at)
        if front >= 0:
            value = rank_of(pairs, symbols[front], symbols[at])
            if value != NO_RANK:
                size = _push(values, places, size, value, front)
    count = np.int64(0)
    for k in range(n):
        if symbols[k] >= 0:
            symbols[count] = symbols[k]
            count += 1
    return count


@njit(cache=True, nogil=True)
def sample_pieces(data, offsets, ends, counts, bpe, keys, rate):
    """Encode as byte_bpe.encode_pieces does, but skip merges with probability `rate`. keys:
    uint64[rows], a number for each document, on which the draws depend."""
    out = np.empty(offsets[-1] - offsets[0] + 1, np.uint32)
    sizes = np.empty(len(counts), np.int64)
    longest = longest_piece(offsets, ends, counts)
    symbols, states = np.empty(longest, np.int64), np.empty(1, np.uint64)
    waiting, passed = np.empty((2, 3 * longest), np.int64), np.empty((2, 3 * longest), np.int64)
    following, preceding = np.empty(longest, np.int64), np.empty(longest, np.int64)
    w, piece = np.int64(0), 0
    for row in range(len(counts)):
        before, a = w, np.int64(offsets[row])
        for _ in range(counts[row]):
            z = np.int64(ends[piece])
            piece += 1
            _begin(states, keys[row], a - offsets[row])
            for k in range(z - a):
                symbols[k] = bpe.bytes[data[a + k]]
            n = _merge(
                bpe.pairs, symbols, z - a, rate, states, waiting, passed, following, preceding
            )
            for k in range(n):
                out[w + k] = symbols[k]
            w += n
            a = z
        sizes[row] = w - before
    return out[:w], sizes


@njit(nogil=True)
def _add_logs(a, b):
    high, low = max(a, b), min(a, b)
    return high if low == _NOTHING else high + np.log1p(np.exp(low - high))


@njit(nogil=True)
def _backward(unigram, rate, numbers, n, sums):
    """Fill `sums`, float64[n + 1]: for each position, the logarithm of the sum of the weights of
    all paths from it to the end of the text."""
    slots, values = unigram.slots, unigram.values
    numbers[n] = 0  # no token continues here
    sums[n] = 0.0
    for at in range(n - 1, -1, -1):
        total = _NOTHING
        slot = np.uint64(numbers[at])
        score = values[slot << _1 | _1]
        if score == _NOTHING:
            score = unigram.lacking
        end = at + 1
        while True:
            if score > _NOTHING:
                total = _add_logs(total, rate * score + sums[end])
            child = np.uint64(np.uint32(slots[slot << _2])) + np.uint64(np.uint32(numbers[end]))
            if slots[child << _2 | _1] != np.int32(slot):
                break
            slot = child
            score = values[slot << _1 | _1]
            end += 1
        sums[at] = total


@njit(nogil=True)
def _choose(unigram, rate, numbers, at, sums, share):
    slots, values = unigram.slots, unigram.values
    slot = np.uint64(numbers[at])
    score, token = values[slot << _1 | _1], np.int64(unigram.token_at[slot])
    if score == _NOTHING:
        score, token = unigram.lacking, np.int64(-1)
    end = at + 1
    chosen, chosen_end = token, end
    while True:
        if score > _NOTHING:
            chosen, chosen_end = token, end
            share -= np.exp(rate * score + sums[end] - sums[at])
            if share < 0.0:
                break
        child = np.uint64(np.uint32(slots[slot << _2])) + np.uint64(np.uint32(numbers[end]))
        if slots[child << _2 | _1] != np.int32(slot):
            break
        slot = child
        score, token = values[slot << _1 | _1], np.int64(unigram.token_at[slot])
        end += 1
    return chosen, chosen_end


@njit(cache=True, nogil=True)
def sample_unigram(data, offsets, unigram, fallback, crossed, width, keys, rate):
    """Encode as unigram.encode_unigram does, but draw a path at random, with a chance proportional
    to (its probability) ** rate. keys: uint64[rows], which decide the draws."""
    out = np.empty((offsets[-1] - offsets[0]) * width + 2, np.uint32)
    sizes = np.empty(len(offsets) - 1, np.int64)
    most = longest_row(offsets, 1)
    numbers, positions = np.empty(most + 1, np.int32), np.empty(most + 1, np.int32)
    sums, states = np.empty(most + 1, np.float64), np.empty(1, np.uint64)
    w = np.int64(0)
    for row in range(len(sizes)):
        before, a, row_end = w, np.int64(offsets[row]), np.int64(offsets[row + 1])
        while a < row_end:
            z = np.int64(word_end(data, a, row_end, crossed))
            _begin(states, keys[row], a - offsets[row])
            n = number_characters(unigram.alphabet, data, a, z, numbers, positions)
            _backward(unigram, rate, numbers, n, sums)
            at, first = np.int64(0), w
            while at < n:
                token, end = _choose(unigram, rate, numbers, at, sums, _draw(states))
                if token >= 0:
                    out[w] = token
                    w += 1
                else:
                    w = write_fallback(fallback, data, a + np.int64(positions[at]), out, w)
                at = end
            if not fallback.joined:
                w = join_unknown(fallback.unknown, out, first, w)
            a = z
        if fallback.joined and len(fallback.bytes) == 0:
            w = join_unknown(fallback.unknown, out, before, w)
        sizes[row] = w - before
    return out[:w], sizes
