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
def _less(ranks, a, b):
    x, y = ranks[a] >> 32, ranks[b] >> 32
    return x < y or (x == y and a < b)


@njit(nogil=True)
def _sift_down(heap, positions, ranks, size, k):
    item = heap[k]
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and _less(ranks, heap[child + 1], heap[child]):
            child += 1
        if not _less(ranks, heap[child], item):
            break
        heap[k] = heap[child]
        positions[heap[k]] = k
        k = child
    heap[k] = item
    positions[item] = k


@njit(nogil=True)
def _sift_up(heap, positions, ranks, k):
    item = heap[k]
    while k > 0:
        parent = (k - 1) >> 1
        if not _less(ranks, item, heap[parent]):
            break
        heap[k] = heap[parent]
        positions[heap[k]] = k
        k = parent
    heap[k] = item
    positions[item] = k


@njit(nogil=True)
def _move(heap, positions, ranks, size, at, rank):
    before = ranks[at]
    ranks[at] = rank
    if rank >> 32 > before >> 32:
        _sift_down(heap, positions, ranks, size, positions[at])
    else:
        _sift_up(heap, positions, ranks, positions[at])


@njit(nogil=True, allocates=True)
def merge_long(pairs, symbols, ranks, n):
    """Merge as `merge_short` does, but with a heap of pairs, until no pair merges."""
    ranks[n - 1] = NO_RANK
    for k in range(n - 1):
        ranks[k] = rank_of(pairs, symbols[k], symbols[k + 1])
    heap, positions = np.empty(n, np.int32), np.empty(n, np.int32)
    following, before = np.empty(n, np.int32), np.empty(n, np.int32)
    for k in range(n):
        heap[k] = positions[k] = k
        following[k], before[k] = k + 1, k - 1
    for k in range(n // 2, -1, -1):
        _sift_down(heap, positions, ranks, n, k)
    while True:
        at = np.int64(heap[0])
        best = ranks[at]
        if best == NO_RANK:
            break
        gone = np.int64(following[at])
        symbols[at] = best & _ID
        symbols[gone] = -1
        _move(heap, positions, ranks, n, gone, NO_RANK)
        z = np.int64(following[gone])
        following[at] = z
        if z < n:
            before[z] = at
            _move(heap, positions, ranks, n, at, rank_of(pairs, symbols[at], symbols[z]))
        else:
            _move(heap, positions, ranks, n, at, NO_RANK)
        if at > 0:
            y = np.int64(before[at])
            _move(heap, positions, ranks, n, y, rank_of(pairs, symbols[y], symbols[at]))
    count = 0
    for k in range(n):
        if symbols[k] >= 0:
            symbols[count] = symbols[k]
            count += 1
    return count
