"""Learning merges for groups of texts: each is the most frequent pair of the group worst off.

Foroutan et al. 2025, algorithm 1. Every group has numbers of its own for the tokens, so its pairs
are counted apart and wait in a heap of its own, while a merge is made in all of them. Since any
pair may be asked for in a group where it is rare, none is forgotten (as in bpe_merges.py).
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from kernel_cache import njit
from tokenize_kit.learn.bpe_merges import (
    Beside,
    is_refused,
    merge_entry,
    spell_token,
    token_slot,
)
from tokenize_kit.learn.bpe_pairs import (
    COUNTERS,
    ENTRIES,
    FREE,
    HEAP,
    MERGED,
    before,
    empty_entries,
    empty_pairs,
    enlarged,
    find_slot,
    scan,
)

_ALL, _ONE = np.int64(-1), np.int64(1)

# Entries that wait in pairing heaps (Fredman et al. 1986), one for each group. root: int64[groups],
# -1 where it is empty; child, sibling: of each entry; newest: the last entry of each pair; older:
# the one of the same pair before an entry.
Heaps = namedtuple("Heaps", "root child sibling newest older")


def learn_fairly(text, bases, most, least, longest, banned, banned_ends, tokens, units, by):
    """(merges: int64[n, 3] of left, right and merged id, the group that each was chosen for).

    text: words.lay_out's, which is merged in; the symbol s of group g is g * (most + 1) + s, with s
    from 0 to bases - 1. tokens: int64[groups], how many each has, which becomes what is left;
    units: float64[chosen]: what its tokens are divided by; by: int64[chosen]: the group whose
    tokens say how a group fares. Merges are chosen for the groups 0 to chosen - 1, the others are
    merged along. The rest as in bpe_merges.learn.
    """
    lengths = np.ones(len(tokens) * (most + 1), np.int32)
    rows = _learn(
        text._replace(lengths=lengths), bases, most, max(1, least), longest, banned, banned_ends,
        tokens, units, by,
    )  # fmt: skip
    return rows[:, :3], rows[:, 3]


@njit(nogil=True)
def _meld(child, sibling, count, key, a, b):
    """The heap of two, by their first entries."""
    if a < 0:
        return b
    if b < 0:
        return a
    if before(count, key, b, a):
        a, b = b, a
    sibling[b] = child[a]
    child[a] = b
    return a


@njit(nogil=True)
def _without_root(child, sibling, count, key, root):
    """The heap of what is left."""
    rest, paired = np.int64(child[root]), np.int64(-1)
    child[root] = sibling[root] = -1
    while rest >= 0:
        a, b = rest, np.int64(sibling[rest])
        rest = np.int64(-1)
        sibling[a] = -1
        if b >= 0:
            rest = np.int64(sibling[b])
            sibling[b] = -1
        melded = _meld(child, sibling, count, key, a, b)
        sibling[melded] = paired
        paired = melded
    while paired >= 0:
        following = np.int64(sibling[paired])
        sibling[paired] = -1
        rest = _meld(child, sibling, count, key, rest, paired)
        paired = following
    return rest


@njit(nogil=True, allocates=True)
def _take_in(heaps, entries, pairs, n, first, width):
    """The heaps with the entries from number `first` on; they leave the common one."""
    root, child, sibling, newest, older = heaps
    count = n[ENTRIES]
    child, sibling = enlarged(child, count), enlarged(sibling, count)
    older, newest = enlarged(older, count), enlarged(newest, len(pairs.key))
    for e in range(first, count):
        p = entries.pair[e]
        # Of a pair's first entry newest holds no value yet.
        older[e] = newest[p] if pairs.waiting[p] > 1 else -1
        newest[p] = e
        child[e] = sibling[e] = -1
        group = (entries.key[e] >> 32) // width
        root[group] = _meld(child, sibling, entries.count, entries.key, root[group], e)
    n[HEAP] = 0
    return Heaps(root, child, sibling, newest, older)


@njit(nogil=True)
def _pop(root, child, sibling, pair, key, count, now_of, group, least):
    """Takes the entry of a group with the highest count, `least` or more; -1 where there is
    none."""
    while root[group] >= 0:
        top = root[group]
        now = now_of[pair[top]]
        fresh = count[top] == now
        if fresh and now < least:
            return np.int64(-1)
        root[group] = _without_root(child, sibling, count, key, top)
        if fresh:
            return top
        count[top] = now
        if now > 0:
            root[group] = _meld(child, sibling, count, key, root[group], top)
    return np.int64(-1)


@njit(nogil=True)
def _worst(tokens, units, by, spent):
    """The group with most tokens for its units that is not spent, the first of equals; -1 where
    there is none."""
    worst, most = -1, -1.0
    for group in range(len(units)):
        rate = tokens[by[group]] / units[group]
        if not spent[group] and rate > most:
            worst, most = group, rate
    return worst


@njit(nogil=True, allocates=True)
def _merge_in(text, pairs, entries, beside, heaps, n, again, spent, group, a, b, new, longest):
    """Merges a pair wherever it stands in a group; (state, the weight of all merged)."""
    width, merged = len(again) // len(heaps.root), np.int64(0)
    first = group * width
    slot = find_slot(pairs.table, (first + a) << 32 | (first + b))
    if pairs.table[slot, 0] == FREE:
        return pairs, entries, beside, heaps, merged
    p = pairs.table[slot, 1]
    if pairs.waiting[p] > 1:  # then the token is made more than once
        again[first + new] = True
    entry = np.int64(heaps.newest[p])
    while entry >= 0:
        following = np.int64(heaps.older[entry])
        if entries.size[entry] > 0:
            count = n[ENTRIES]
            pairs, entries, beside = merge_entry(
                text, pairs, entries, beside, n, entry, first + new, again, _ONE, longest
            )
            merged += n[MERGED]
            heaps = _take_in(heaps, entries, pairs, n, count, width)
            if n[ENTRIES] > count and group < len(spent):
                spent[group] = False
        entry = following
    pairs.count[p] = 0
    return pairs, entries, beside, heaps, merged


@njit(cache=True, nogil=True)
def _learn(text, bases, most, least, longest, banned, banned_ends, tokens_of, units, by):
    width, groups = most + 1, len(tokens_of)
    pairs, entries, n = empty_pairs(), empty_entries(), np.zeros(COUNTERS, np.int64)
    ids = groups * width
    beside = Beside(
        np.zeros((2 * ids, 2), np.int64), np.zeros(2 * ids, np.int64), np.zeros(2 * ids, np.int32),
        np.zeros(1 << 10, np.int32), np.zeros(1 << 10, np.int32),
    )  # fmt: skip
    nothing, none = np.zeros(0, np.bool_), np.zeros(0, np.int32)
    heaps = Heaps(np.full(groups, -1, np.int64), none, none, none, none)
    letters, ends = np.zeros(16 * width, np.int32), np.zeros(width + 1, np.int64)
    for t in range(bases):
        letters[t], ends[t + 1] = t, t + 1
    names = np.full(1 << (np.int64(np.log2(width)) + 2), -1, np.int64)
    again = np.zeros(ids, np.bool_)
    spent = np.zeros(len(units), np.bool_)
    merges, merged, tokens = np.empty(4 * (most + 16), np.int64), 0, bases
    pairs, entries = scan(text, pairs, entries, n, _ONE, _ALL, longest)
    heaps = _take_in(heaps, entries, pairs, n, 0, width)
    while tokens < most:
        group = _worst(tokens_of, units, by, spent)
        if group < 0:
            break
        entry = _pop(
            heaps.root, heaps.child, heaps.sibling, entries.pair, entries.key, entries.count,
            pairs.count, group, least,
        )  # fmt: skip
        if entry < 0:
            spent[group] = True
            continue
        pair, first = entries.key[entry], group * width
        a, b = (pair >> 32) - first, (pair & 0xFFFFFFFF) - first
        letters = spell_token(letters, ends, a, b, tokens)
        start, end = ends[tokens], ends[tokens + 1]
        if is_refused(letters, start, end, longest, banned, banned_ends, nothing, 0):
            continue
        slot = token_slot(letters, ends, names, tokens)
        new = names[slot]
        if new < 0:
            new = tokens
            names[slot] = new
            for g in range(groups):
                text.lengths[g * width + new] = end - start
            tokens += 1
        else:
            for g in range(groups):
                again[g * width + new] = True
        merges = enlarged(merges, 4 * merged + 4)
        merges[4 * merged], merges[4 * merged + 1], merges[4 * merged + 2] = a, b, new
        merges[4 * merged + 3] = group
        merged += 1
        for g in range(groups):
            pairs, entries, beside, heaps, weight = _merge_in(
                text, pairs, entries, beside, heaps, n, again, spent, g, a, b, new, longest
            )
            tokens_of[g] -= weight
    return merges[: 4 * merged].reshape(-1, 4)
