"""What a BPE trainer remembers: pairs with their counts, and a heap of those that wait.

A pair waits with the places where it came up, once for every turn in which it came up. Functions
that give back what they are given give it back larger where need be.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import stir

FREE = np.int64(-1)

# table: int64[slots, 2]: a pair (left << 32 | right) and its number, by which key, count and
# waiting (how many entries of it wait) are found.
Pairs = namedtuple("Pairs", "table key count waiting")
# Entries: the number of a pair, the pair, its count when last looked up, its places in `where`,
# which lie there in the order of entries. heap: entries that wait.
Entries = namedtuple("Entries", "pair key count start size heap where")
# n: int64[7], how many there are: pairs, entries, entries in the heap, places, places of entries
# that wait; and of one turn neighbours and occurrences.
PAIRS, ENTRIES, HEAP, PLACES, LIVE, TOUCHED, EVENTS = range(7)


@njit(nogil=True)
def no_pairs():
    """Room for some."""
    size = 1 << 12
    return Pairs(
        empty_table(1 << 14), np.zeros(size, np.int64), np.zeros(size, np.int64),
        np.zeros(size, np.int32),
    )  # fmt: skip


@njit(nogil=True)
def no_entries():
    """Room for some."""
    size = 1 << 12
    return Entries(
        np.zeros(size, np.int32), np.zeros(size, np.int64), np.zeros(size, np.int64),
        np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int32),
        np.zeros(size, np.int32),
    )  # fmt: skip


@njit(nogil=True)
def wider(array, size):
    """A copy with room for `size` and half as much again, where there is less."""
    if size <= len(array):
        return array
    grown = np.empty(size * 3 // 2 + 16, array.dtype)
    for k in range(len(array)):
        grown[k] = array[k]
    return grown


@njit(nogil=True)
def empty_table(slots):
    table = np.empty((slots, 2), np.int64)
    for k in range(slots):
        table[k, 0] = FREE
    return table


@njit(nogil=True)
def find(table, key):
    """Slot of a pair, or the free one where it belongs."""
    mask = np.uint64(len(table) - 1)
    slot = stir(np.uint64(key)) & mask
    while table[slot, 0] != key and table[slot, 0] != FREE:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@njit(nogil=True)
def _refill(old, table):
    for k in range(len(old)):
        if old[k, 0] != FREE:
            slot = find(table, old[k, 0])
            table[slot, 0], table[slot, 1] = old[k, 0], old[k, 1]


@njit(nogil=True)
def larger_table(table, size):
    """A table with room for so many pairs."""
    if 2 * size <= len(table):
        return table
    slots = len(table)
    while 2 * size > slots:
        slots *= 2
    grown = empty_table(slots)
    _refill(table, grown)
    return grown


@njit(nogil=True)
def room_for_pairs(pairs, size):
    """Pairs with room for so many."""
    table, key, count, waiting = pairs
    return Pairs(
        larger_table(table, size), wider(key, size), wider(count, size), wider(waiting, size)
    )


@njit(nogil=True)
def room_for_entries(entries, n, more, places):
    """Entries with room for more of them, with so many places; half of the places that lie there
    being of no use, they go."""
    pair, key, count, start, size, heap, where = entries
    need = n[ENTRIES] + more
    if n[PLACES] + places > len(where):
        if 2 * n[LIVE] < n[PLACES]:
            kept = np.empty((n[LIVE] + places) * 3 // 2 + 16, where.dtype)
            n[PLACES] = _move(where, kept, start, size, n[ENTRIES])
            where = kept
        else:
            where = wider(where, n[PLACES] + places)
    return Entries(
        wider(pair, need), wider(key, need), wider(count, need), wider(start, need),
        wider(size, need), wider(heap, need), where,
    )  # fmt: skip


@njit(nogil=True)
def _move(where, kept, start, size, entries):
    at = 0
    for e in range(entries):
        s, z = start[e], size[e]
        for k in range(z):
            kept[at + k] = where[s + k]
        start[e] = at
        at += z
    return at


@njit(nogil=True)
def keep(table, keys, count, waiting, n, key, occurrences):
    """The number of a pair that is not among them yet; there is room."""
    p = n[PAIRS]
    n[PAIRS] += 1
    slot = find(table, key)
    table[slot, 0], table[slot, 1] = key, p
    keys[p], count[p], waiting[p] = key, occurrences, 0
    return p


@njit(nogil=True)
def enter(pair, key, count, start, size, heap, waiting, n, p, tokens, occurrences, places):
    """The number of an entry that waits from now on, its places to be filled in; there is room."""
    e = n[ENTRIES]
    n[ENTRIES] += 1
    pair[e], key[e], count[e], start[e], size[e] = p, tokens, occurrences, n[PLACES], 0
    n[PLACES] += places
    n[LIVE] += places
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
    """Whether entry a goes before entry b: the larger count, then the smaller pair."""
    return count[a] > count[b] or (count[a] == count[b] and key[a] < key[b])


@njit(nogil=True)
def _settle(heap, count, key, size):
    """Moves the entry at the top down to where it belongs."""
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
def take(pair, key, count, heap, now_of, n, threshold):
    """Takes the entry with the highest count, `threshold` or more; -1 where there is none.

    now_of: the counts of pairs: where an entry's own is out of date, it is mended and waits on.
    """
    while n[HEAP] > 0 and count[heap[0]] >= threshold:
        top = np.int64(heap[0])
        now = now_of[pair[top]]
        same = count[top] == now
        if same:
            n[HEAP] -= 1
            heap[0] = heap[n[HEAP]]
        count[top] = now
        if n[HEAP]:
            _settle(heap, count, key, n[HEAP])
        if same:
            return top
    return np.int64(-1)
