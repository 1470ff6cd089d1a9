"""Looking through the text of a BPE trainer for pairs that it does not know, or has forgotten.

In these loops every array is an argument: one taken out of a tuple, or put in the place of another,
costs a count of references at each step.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit
from tokenize_kit.encode.bytes8 import stir
from tokenize_kit.learn.bpe_pairs import (
    ENTRIES,
    FREE,
    PAIRS,
    empty_table,
    enter,
    find,
    keep,
    larger_table,
    room_for_entries,
    room_for_pairs,
    wider,
)
from tokenize_kit.learn.bpe_text import weight_at

_SKETCH = np.uint64((1 << 20) - 1)


@njit(nogil=True)
def _following(cells, lengths, at):
    """First cells of the tokens of the first pair at or behind a token or gap; -1 at the end."""
    last = len(cells) - 1
    while at < last:
        token = cells[at]
        behind = at + 1 if token < 0 else at + lengths[token]
        if token >= 0 and cells[behind] >= 0:
            return at, behind
        at = behind
    return -1, -1


@njit(nogil=True)
def _sketched(cells, lengths, blocks, bounds, values, sketch):
    """Occurrences of pairs by the last bits of a hash: no pair has more than its place says."""
    at, behind = _following(cells, lengths, np.int64(0))
    while at >= 0:
        key = np.uint64(np.int64(cells[at]) << 32 | np.int64(cells[behind]))
        sketch[stir(key) & _SKETCH] += weight_at(blocks, bounds, values, at)
        at, behind = _following(cells, lengths, behind)


@njit(nogil=True)
def _candidate(cells, lengths, at, behind, only, longest, sketch, threshold):
    """The pair at a place, or -1 where it is not looked for."""
    a, b = np.int64(cells[at]), np.int64(cells[behind])
    key = a << 32 | b
    if lengths[a] + lengths[b] > longest or (only >= 0 and a != only and b != only):
        return np.int64(-1)
    if only < 0 and sketch[stir(np.uint64(key)) & _SKETCH] < threshold:
        return np.int64(-1)
    return key


@njit(nogil=True)
def _counted(
    cells, lengths, blocks, bounds, values, kept, sketch, threshold, only, longest,
    at, table, sums, keys, found,
):  # fmt: skip
    """(place, pairs found) where there is no room for another pair, or at the end of the text."""
    at, behind = _following(cells, lengths, at)
    while at >= 0:
        key = _candidate(cells, lengths, at, behind, only, longest, sketch, threshold)
        if key >= 0 and kept[find(kept, key), 0] == FREE:
            slot = find(table, key)
            if table[slot, 0] == FREE:
                if found == len(keys):
                    return at, found
                table[slot, 0], table[slot, 1] = key, found
                keys[found], sums[found, 0], sums[found, 1] = key, 0, 0
                found += 1
            k = table[slot, 1]
            sums[k, 0] += weight_at(blocks, bounds, values, at)
            sums[k, 1] += 1
        at, behind = _following(cells, lengths, behind)
    return at, found


@njit(nogil=True)
def _placed(
    cells, lengths, kept, sketch, threshold, only, longest, first, first_entry, starts, sizes, where
):
    """Puts the places of pairs from number `first` on into their entries."""
    at, behind = _following(cells, lengths, np.int64(0))
    while at >= 0:
        key = _candidate(cells, lengths, at, behind, only, longest, sketch, threshold)
        if key >= 0:
            slot = find(kept, key)
            if kept[slot, 0] != FREE and kept[slot, 1] >= first:
                e = first_entry + kept[slot, 1] - first
                where[starts[e] + sizes[e]] = at
                sizes[e] += 1
        at, behind = _following(cells, lengths, behind)


@njit(nogil=True)
def scan(text, pairs, entries, n, threshold, only, longest):
    """(pairs, entries) with all pairs of the text that are not kept yet and occur `threshold` times
    or more; only: of this token alone, -1 for all."""
    cells, lengths, blocks, bounds, values, _ = text
    sketch = np.zeros(_SKETCH + 1 if only < 0 else 1, np.int64)
    if only < 0:
        _sketched(cells, lengths, blocks, bounds, values, sketch)
    room = 1 << 12
    table, keys = empty_table(2 * room), np.empty(room, np.int64)
    sums = np.empty((room, 2), np.int64)
    at, found = np.int64(0), np.int64(0)
    while True:
        at, found = _counted(
            cells, lengths, blocks, bounds, values, pairs.table, sketch, threshold, only, longest,
            at, table, sums, keys, found,
        )  # fmt: skip
        if at < 0:
            break
        keys = wider(keys, 2 * found)
        grown = np.empty((len(keys), 2), np.int64)
        for k in range(found):
            grown[k, 0], grown[k, 1] = sums[k, 0], sums[k, 1]
        sums = grown
        table = larger_table(table, len(keys))
    many, places = np.int64(0), np.int64(0)
    for k in range(found):
        if sums[k, 0] >= threshold:
            many += 1
            places += sums[k, 1]
    pairs = room_for_pairs(pairs, n[PAIRS] + many)
    entries = room_for_entries(entries, n, many, places)
    first, first_entry = n[PAIRS], n[ENTRIES]
    for k in range(found):
        if sums[k, 0] >= threshold:
            p = keep(pairs.table, pairs.key, pairs.count, pairs.waiting, n, keys[k], sums[k, 0])
            enter_pair(entries, pairs, n, p, sums[k, 1])
    _placed(
        cells, lengths, pairs.table, sketch, threshold, only, longest, first, first_entry,
        entries.start, entries.size, entries.where,
    )  # fmt: skip
    return pairs, entries


@njit(nogil=True)
def enter_pair(entries, pairs, n, p, places):
    return enter(
        entries.pair, entries.key, entries.count, entries.start, entries.size, entries.heap,
        pairs.waiting, n, p, pairs.key[p], pairs.count[p], places,
    )  # fmt: skip
