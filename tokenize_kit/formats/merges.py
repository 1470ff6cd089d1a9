"""Byte-pair merges as a table, and merging by rank.

As in `tokenizers` and tiktoken, each step merges the neighbours whose pair has the lowest rank (the
leftmost of equal pairs), until no pair has a rank. Short words are scanned for the lowest rank;
long words keep a heap, so a word of n letters takes n log n steps.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import mix_bits

NO_RANK = np.int64(1 << 62)
SHORT = 40  # up to this many symbols, scanning is faster than a heap
_ONE, _6, _40, _63 = np.uint64(1), np.uint64(6), np.uint64(40), np.uint64(63)
_ID = np.int64(0xFFFFFFFF)
STEP = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64
_11 = np.uint64(11)


# slots: int64[n, 2]: left << 32 | right, and rank << 32 | merged id, NO_RANK in a free slot; bits:
# uint64[m]: a Bloom filter of the pairs, because most pairs looked up do not merge.
Pairs = namedtuple("Pairs", "slots bits")


def pair_table(merges: np.ndarray, ranks: np.ndarray | None = None) -> Pairs:
    """Build the table of merges. merges: int64[n, 3], the left, right and merged id of each merge;
    ranks: int64[n], by default the row numbers. If a pair occurs twice, the last row counts."""
    size = max(64, len(merges))
    slots = np.zeros((1 << int(3 * size).bit_length(), 2), np.int64)
    slots[:, 1] = NO_RANK
    bits = np.zeros(1 << (int(size).bit_length() - 2), np.uint64)  # 16 to 32 bits per pair
    ranks = np.arange(len(merges)) if ranks is None else ranks
    _insert(slots, bits, np.ascontiguousarray(merges, np.int64), ranks.astype(np.int64))
    return Pairs(slots, bits)


@njit(cache=True, nogil=True)
def _insert(slots, bits, merges, ranks):
    mask = np.uint64(len(slots) - 1)
    for row in range(len(merges)):
        key = merges[row, 0] << 32 | merges[row, 1]
        mixed = mix_bits(np.uint64(key))
        slot = mixed & mask
        while slots[slot, 1] != NO_RANK and slots[slot, 0] != key:
            slot = (slot + np.uint64(1)) & mask
        slots[slot, 0] = key
        slots[slot, 1] = ranks[row] << 32 | merges[row, 2]
        bit = mixed >> _40
        bits[(bit >> _6) & np.uint64(len(bits) - 1)] |= _ONE << (bit & _63)


@njit(nogil=True, forceinline=True)
def rank_of(pairs, left, right):
    """Return rank << 32 | merged id of a pair, or NO_RANK if the pair does not merge."""
    slots, bits = pairs
    key = np.int64(left) << 32 | np.int64(right)
    mixed = mix_bits(np.uint64(key))
    bit = mixed >> _40
    if bits[(bit >> _6) & np.uint64(len(bits) - 1)] >> (bit & _63) & _ONE == 0:
        return NO_RANK
    mask = np.uint64(len(slots) - 1)
    slot = mixed & mask
    while slots[slot, 0] != key and slots[slot, 1] != NO_RANK:
        slot = (slot + np.uint64(1)) & mask
    return slots[slot, 1]


@njit(nogil=True)
def merge_short(pairs, symbols, ranks, n, until=1):
    """Merge the ids symbols[:n]: int64[] in place until only `until` ids are left or no pair
    merges; return the number of ids left. ranks: int64[n], a buffer."""
    for k in range(n - 1):
        ranks[k] = rank_of(pairs, symbols[k], symbols[k + 1])
    while n > until:
        best, at = NO_RANK, 0
        for k in range(n - 1):
            if ranks[k] >> 32 < best >> 32:  # among equal ranks the leftmost
                best, at = ranks[k], k
        if best == NO_RANK:
            break
        symbols[at] = best & _ID
        n -= 1
        for k in range(at + 1, n):
            symbols[k] = symbols[k + 1]
            ranks[k] = ranks[k + 1]
        if at > 0:
            ranks[at - 1] = rank_of(pairs, symbols[at - 1], symbols[at])
        if at < n - 1:
            ranks[at] = rank_of(pairs, symbols[at], symbols[at + 1])
    return n


@njit(cache=True, nogil=True)
def derive_merges(data, ends, byte_numbers, pairs, ids):
    """Return the last merge of each token as (left, right): int64[tokens], the two ids merged. For
    a token of one byte, left is its id and right is -1. If a token's bytes do not merge to
    ids[token], both are -1. data, ends: the bytes of the tokens."""
    left, right = np.full(len(ids), -1, np.int64), np.full(len(ids), -1, np.int64)
    symbols = np.empty(16, np.int64)
    ranks = np.empty(16, np.int64)
    for t in range(len(ids)):
        n = ends[t + 1] - ends[t]
        if n > len(symbols):
            symbols, ranks = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        for k in range(n):
            symbols[k] = byte_numbers[data[ends[t] + k]]
        if n == 1:
            if symbols[0] == ids[t]:
                left[t] = symbols[0]
            continue
        if merge_short(pairs, symbols, ranks, n, 2) == 2:
            merged = rank_of(pairs, symbols[0], symbols[1])
            if merged != NO_RANK and merged & 0xFFFFFFFF == ids[t]:
                left[t], right[t] = symbols[0], symbols[1]
    return left, right


@njit(nogil=True)
def _before(values, places, a, b):
    x, y = values[a] >> 32, values[b] >> 32
    return x < y or (x == y and places[a] < places[b])


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
def _draw(states):
    states[0] += STEP
    return np.float64(mix_bits(mix_bits(states[0])) >> _11) * 2.0**-53


@njit(nogil=True)
def merge_drawn(pairs, symbols, n, rate, states, waiting, passed, following, preceding):
    """Merge the ids symbols[:n]: int64[] in place and return the number of ids left. The possible
    merges are tried in order of rank, the leftmost of equal ranks first. Each is skipped with the
    probability `rate`, and tried again after the next merge that is made. states: uint64[1], the
    random state; waiting, passed: int64[2, 3n], and following, preceding: int64[n]: buffers."""
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
        if rate > 0 and _draw(states) < rate:
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


@njit(nogil=True, allocates=True)
def merge_long(pairs, symbols, n):
    """Merge as `merge_short` does, but with a heap of pairs, until no pair merges."""
    waiting, links = np.empty((2, 3 * n), np.int64), np.empty((2, n), np.int64)
    states = np.empty(0, np.uint64)  # nothing is drawn
    return merge_drawn(pairs, symbols, n, 0.0, states, waiting, waiting, links[0], links[1])
