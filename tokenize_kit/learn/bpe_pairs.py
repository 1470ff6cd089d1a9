"""Pairs of a BPE learner: their counts, a heap of waiting pairs, and scans of the text for new
pairs.

If a merge creates new occurrences of a pair, one entry with their positions is added to the heap.
Functions that enlarge an array return it. Functions with loops get each array as a separate
argument: if a loop read an array from a tuple, numba would count a reference at every step.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from llmcurate.base.kernels import njit
from llmcurate.base.kernels.intrinsics import mix_bits
from tokenize_kit.learn.words import weight_at

FREE = np.int64(-1)

# table: int64[slots, 2]: a pair (left << 32 | right) and its number. key, count and waiting (its
# entries in the heap) are indexed by the number.
Pairs = namedtuple("Pairs", "table key count waiting")
# Entries: the number of a pair, the pair, its count when last checked, and its positions in
# `where`, in the order of entries. heap: the waiting entries.
Entries = namedtuple("Entries", "pair key count start size heap where")
# n: int64[COUNTERS], the number of: pairs, entries, entries in the heap, positions, positions of
# waiting entries; for one merge, touched neighbours and pairs found.
PAIRS, ENTRIES, HEAP, POSITIONS, LIVE, TOUCHED, EVENTS = range(7)
COUNTERS = 7


@njit(nogil=True, allocates=True)
def empty_pairs():
    size = 1 << 12
    return Pairs(
        empty_table(1 << 14), np.zeros(size, np.int64), np.zeros(size, np.int64),
        np.zeros(size, np.int32),
    )  # fmt: skip


@njit(nogil=True, allocates=True)
def empty_entries():
    size = 1 << 12
    return Entries(
        np.zeros(size, np.int32), np.zeros(size, np.int64), np.zeros(size, np.int64),
        np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int32),
        np.zeros(size, np.int32),
    )  # fmt: skip


@njit(nogil=True, allocates=True)
def enlarged(array, size):
    if size <= len(array):
        return array
    grown = np.empty(size * 3 // 2 + 16, array.dtype)
    for k in range(len(array)):
        grown[k] = array[k]
    return grown


@njit(nogil=True, allocates=True)
def empty_table(slots):
    table = np.empty((slots, 2), np.int64)
    for k in range(slots):
        table[k, 0] = FREE
    return table


@njit(nogil=True)
def find_slot(table, key):
    """Return a pair's slot in a hash table, or the free slot to put the pair into."""
    mask = np.uint64(len(table) - 1)
    slot = mix_bits(np.uint64(key)) & mask
    while table[slot, 0] != key and table[slot, 0] != FREE:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@njit(nogil=True)
def _refill(old, table):
    for k in range(len(old)):
        if old[k, 0] != FREE:
            slot = find_slot(table, old[k, 0])
            table[slot, 0], table[slot, 1] = old[k, 0], old[k, 1]


@njit(nogil=True, allocates=True)
def larger_table(table, size):
    if 2 * size <= len(table):
        return table
    slots = len(table)
    while 2 * size > slots:
        slots *= 2
    grown = empty_table(slots)
    _refill(table, grown)
    return grown


@njit(nogil=True, allocates=True)
def room_for_pairs(pairs, size):
    table, key, count, waiting = pairs
    return Pairs(
        larger_table(table, size),
        enlarged(key, size),
        enlarged(count, size),
        enlarged(waiting, size),
    )


@njit(nogil=True, allocates=True)
def room_for_entries(entries, n, new_entries, positions):
    """Return `entries` with room for `new_entries` more entries and `positions` more positions of
    pairs in the text. n: counters of what the arrays hold. If the positions do not fit and most
    stored positions belong to entries that have left the heap, these positions are dropped."""
    pair, key, count, start, size, heap, where = entries
    need = n[ENTRIES] + new_entries
    if n[POSITIONS] + positions > len(where):
        if 2 * n[LIVE] < n[POSITIONS]:
            kept = np.empty((n[LIVE] + positions) * 3 // 2 + 16, where.dtype)
            n[POSITIONS] = _compact(where, kept, start, size, n[ENTRIES])
            where = kept
        else:
            where = enlarged(where, n[POSITIONS] + positions)
    return Entries(
        enlarged(pair, need), enlarged(key, need), enlarged(count, need), enlarged(start, need),
        enlarged(size, need), enlarged(heap, need), where,
    )  # fmt: skip


@njit(nogil=True)
def _compact(where, kept, start, size, entries):
    at = 0
    for e in range(entries):
        s, z = start[e], size[e]
        for k in range(z):
            kept[at + k] = where[s + k]
        start[e] = at
        at += z
    return at


@njit(nogil=True)
def add_pair(table, keys, count, waiting, n, key, occurrences):
    p = n[PAIRS]
    n[PAIRS] += 1
    slot = find_slot(table, key)
    table[slot, 0], table[slot, 1] = key, p
    keys[p], count[p], waiting[p] = key, occurrences, 0
    return p


@njit(nogil=True)
def add_entry(pair, key, count, start, size, heap, waiting, n, p, tokens, occurrences, positions):
    e = n[ENTRIES]
    n[ENTRIES] += 1
    pair[e], key[e], count[e], start[e], size[e] = p, tokens, occurrences, n[POSITIONS], 0
    n[POSITIONS] += positions
    n[LIVE] += positions
    waiting[p] += 1
    k = n[HEAP]
    n[HEAP] += 1
    while k > 0:
        parent = (k - 1) >> 1
        if not _before(count, key, e, heap[parent]):
            break
        heap[k] = heap[parent]
        k = parent
    heap[k] = e
    return e


@njit(nogil=True)
def _before(count, key, a, b):
    return count[a] > count[b] or (count[a] == count[b] and key[a] < key[b])


@njit(nogil=True)
def _sift_down(heap, count, key, size):
    entry, k = heap[0], 0
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and _before(count, key, heap[child + 1], heap[child]):
            child += 1
        if not _before(count, key, heap[child], entry):
            break
        heap[k] = heap[child]
        k = child
    heap[k] = entry


@njit(nogil=True)
def pop_entry(pair, key, count, heap, now_of, n, threshold):
    """Remove the entry with the highest count from the heap and return its number, or -1 if no
    count reaches `threshold`. now_of: the current counts of pairs. Entries with an outdated count
    are corrected and put back."""
    while n[HEAP] > 0 and count[heap[0]] >= threshold:
        top = np.int64(heap[0])
        now = now_of[pair[top]]
        same = count[top] == now
        if same:
            n[HEAP] -= 1
            heap[0] = heap[n[HEAP]]
        count[top] = now
        if n[HEAP]:
            _sift_down(heap, count, key, n[HEAP])
        if same:
            return top
    return np.int64(-1)


_SKETCH = np.uint64((1 << 20) - 1)


@njit(nogil=True)
def _next_pair(cells, lengths, at):
    last = len(cells) - 1
    while at < last:
        token = cells[at]
        after = at + 1 if token < 0 else at + lengths[token]
        if token >= 0 and cells[after] >= 0:
            return at, after
        at = after
    return -1, -1


@njit(nogil=True)
def _fill_sketch(cells, lengths, blocks, bounds, values, sketch):
    """Add up the weights of all pairs in the small table `sketch`, indexed by the low bits of a
    pair's hash. A cell's sum is an upper bound of the count of every pair with these low bits."""
    at, after = _next_pair(cells, lengths, np.int64(0))
    while at >= 0:
        key = np.uint64(np.int64(cells[at]) << 32 | np.int64(cells[after]))
        sketch[mix_bits(key) & _SKETCH] += weight_at(blocks, bounds, values, at)
        at, after = _next_pair(cells, lengths, after)


@njit(nogil=True)
def _candidate(cells, lengths, at, after, only, longest, sketch, threshold):
    a, b = np.int64(cells[at]), np.int64(cells[after])
    key = a << 32 | b
    if lengths[a] + lengths[b] > longest or (only >= 0 and a != only and b != only):
        return np.int64(-1)
    if only < 0 and sketch[mix_bits(np.uint64(key)) & _SKETCH] < threshold:
        return np.int64(-1)
    return key


@njit(nogil=True)
def _count_pairs(
    cells, lengths, blocks, bounds, values, kept, sketch, threshold, only, longest,
    at, table, sums, keys, count,
):  # fmt: skip
    at, after = _next_pair(cells, lengths, at)
    while at >= 0:
        key = _candidate(cells, lengths, at, after, only, longest, sketch, threshold)
        if key >= 0 and kept[find_slot(kept, key), 0] == FREE:
            slot = find_slot(table, key)
            if table[slot, 0] == FREE:
                if count == len(keys):
                    return at, count
                table[slot, 0], table[slot, 1] = key, count
                keys[count], sums[count, 0], sums[count, 1] = key, 0, 0
                count += 1
            k = table[slot, 1]
            sums[k, 0] += weight_at(blocks, bounds, values, at)
            sums[k, 1] += 1
        at, after = _next_pair(cells, lengths, after)
    return at, count


@njit(nogil=True)
def _fill_positions(
    cells, lengths, kept, sketch, threshold, only, longest, first, first_entry, starts, sizes, where
):
    at, after = _next_pair(cells, lengths, np.int64(0))
    while at >= 0:
        key = _candidate(cells, lengths, at, after, only, longest, sketch, threshold)
        if key >= 0:
            slot = find_slot(kept, key)
            if kept[slot, 0] != FREE and kept[slot, 1] >= first:
                e = first_entry + kept[slot, 1] - first
                where[starts[e] + sizes[e]] = at
                sizes[e] += 1
        at, after = _next_pair(cells, lengths, after)


@njit(nogil=True, allocates=True)
def scan(text, pairs, entries, n, threshold, only, longest):
    """Add pairs of neighbouring tokens in the text to `pairs` and `entries`; return (pairs,
    entries), perhaps enlarged. New pairs are added that occur `threshold` times or more. n:
    counters of what the arrays hold; only: a token that new pairs must contain, or -1; longest: the
    greatest length of a pair."""
    cells, lengths, blocks, bounds, values, _ = text
    sketch = np.zeros(_SKETCH + 1 if only < 0 else 1, np.int64)
    if only < 0:
        _fill_sketch(cells, lengths, blocks, bounds, values, sketch)
    capacity = 1 << 12
    table, keys = empty_table(2 * capacity), np.empty(capacity, np.int64)
    sums = np.empty((capacity, 2), np.int64)
    at, count = np.int64(0), np.int64(0)
    while True:
        at, count = _count_pairs(
            cells, lengths, blocks, bounds, values, pairs.table, sketch, threshold, only, longest,
            at, table, sums, keys, count,
        )  # fmt: skip
        if at < 0:
            break
        keys = enlarged(keys, 2 * count)
        grown = np.empty((len(keys), 2), np.int64)
        for k in range(count):
            grown[k, 0], grown[k, 1] = sums[k, 0], sums[k, 1]
        sums = grown
        table = larger_table(table, len(keys))
    new_pairs, positions = np.int64(0), np.int64(0)
    for k in range(count):
        if sums[k, 0] >= threshold:
            new_pairs += 1
            positions += sums[k, 1]
    pairs = room_for_pairs(pairs, n[PAIRS] + new_pairs)
    entries = room_for_entries(entries, n, new_pairs, positions)
    first, first_entry = n[PAIRS], n[ENTRIES]
    for k in range(count):
        if sums[k, 0] >= threshold:
            p = add_pair(pairs.table, pairs.key, pairs.count, pairs.waiting, n, keys[k], sums[k, 0])
            add_pair_entry(entries, pairs, n, p, sums[k, 1])
    _fill_positions(
        cells, lengths, pairs.table, sketch, threshold, only, longest, first, first_entry,
        entries.start, entries.size, entries.where,
    )  # fmt: skip
    return pairs, entries


@njit(nogil=True)
def add_pair_entry(entries, pairs, n, p, positions):
    return add_entry(
        entries.pair, entries.key, entries.count, entries.start, entries.size, entries.heap,
        pairs.waiting, n, p, pairs.key[p], pairs.count[p], positions,
    )  # fmt: skip
