"""Learning merges from word counts: the most frequent pair, again and again.

The merges are those of `tokenizers`' BpeTrainer, its order of equals included (the smaller pair of
ids first), with counts in 64 bits. Like it, a pair waits in a heap with the words in which it came
up; its count there may be out of date and is looked up again when its turn comes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokenize_kit.bytes8 import stir

_FREE = np.int64(-1)


@njit(nogil=True)
def _before(counts, keys, a, b):
    """Whether entry a goes before entry b: the larger count, then the smaller pair."""
    return counts[a] > counts[b] or (counts[a] == counts[b] and keys[a] < keys[b])


@njit(nogil=True)
def _push(heap, size, counts, keys, entry):
    """Puts an entry in; heap: int64[] with room."""
    k = size
    while k > 0:
        parent = (k - 1) >> 1
        if not _before(counts, keys, entry, heap[parent]):
            break
        heap[k] = heap[parent]
        k = parent
    heap[k] = entry


@njit(nogil=True)
def _settle(heap, size, counts, keys, k):
    """Moves the entry at place k down to where it belongs."""
    entry = heap[k]
    while True:
        child = 2 * k + 1
        if child >= size:
            break
        if child + 1 < size and _before(counts, keys, heap[child + 1], heap[child]):
            child += 1
        if not _before(counts, keys, heap[child], entry):
            break
        heap[k] = heap[child]
        k = child
    heap[k] = entry


@njit(nogil=True)
def _find(table, key):
    """Slot of a pair, or the free one where it belongs. table: int64[slots, 2]: pair, number."""
    mask = np.uint64(len(table) - 1)
    slot = stir(np.uint64(key)) & mask
    while table[slot, 0] != key and table[slot, 0] != _FREE:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@njit(nogil=True)
def _larger(table):
    grown = np.empty((2 * len(table), 2), np.int64)
    grown[:, 0] = _FREE
    for k in range(len(table)):
        if table[k, 0] != _FREE:
            grown[_find(grown, table[k, 0])] = table[k]
    return grown


@njit(nogil=True)
def _wider(array, size):
    """A copy with room for `size` and half as much again."""
    grown = np.empty(size * 3 // 2 + 16, array.dtype)
    grown[: len(array)] = array
    return grown


@njit(nogil=True)
def _spelled(letters, ends, names, a, b):
    """Slot of names: int64[slots] that holds the token spelled as a and b are, or a free one."""
    n, m = ends[a + 1] - ends[a], ends[b + 1] - ends[b]
    mask = np.uint64(len(names) - 1)
    value = np.uint64(n + m)
    for k in range(n):
        value = stir(value ^ np.uint64(letters[ends[a] + k]))
    for k in range(m):
        value = stir(value ^ np.uint64(letters[ends[b] + k]))
    slot = value & mask
    while names[slot] >= 0:
        t = names[slot]
        if ends[t + 1] - ends[t] == n + m:
            same = True
            for k in range(n):
                same = same and letters[ends[t] + k] == letters[ends[a] + k]
            for k in range(m):
                same = same and letters[ends[t] + n + k] == letters[ends[b] + k]
            if same:
                break
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(nogil=True)
def _lose(table, count_of, key, weight):
    """One occurrence less of a pair that is known."""
    slot = _find(table, key)
    if table[slot, 0] != _FREE:
        count_of[table[slot, 1]] -= weight


@njit(nogil=True)
def _gain(table, known, events, numbers, turn, key, weight, place):
    """One occurrence more of a pair, at a place; there is room. known: key, count, turn and
    occurrences in it of each pair; numbers: how many pairs, events, and pairs of this turn."""
    slot = _find(table, key)
    key_of, count_of, turn_of, gained_of = known
    if table[slot, 0] == _FREE:
        p = numbers[0]
        numbers[0] += 1
        table[slot, 0], table[slot, 1] = key, p
        key_of[p], count_of[p], turn_of[p] = key, 0, -1
    p = table[slot, 1]
    count_of[p] += weight
    if turn_of[p] != turn:
        turn_of[p], gained_of[p] = turn, 0
        events[2][numbers[2]] = p
        numbers[2] += 1
    gained_of[p] += 1
    if turn:
        events[0][numbers[1]], events[1][numbers[1]] = p, place
    numbers[1] += 1


@njit(nogil=True)
def _room_for_pairs(table, known, numbers):
    """(table, known) with room for as many new pairs as an occurrence can make."""
    n = numbers[0]
    if 2 * (n + 4) >= len(table):
        table = _larger(table)
    if n + 4 > len(known[0]):
        known = (_wider(known[0], n), _wider(known[1], n), _wider(known[2], n), _wider(known[3], n))
    return table, known


@njit(nogil=True)
def _room_for_events(events, numbers, turn):
    n, pairs = numbers[1] + 4, numbers[2] + 4
    if turn and n > len(events[0]):
        events = (_wider(events[0], n), _wider(events[1], n), events[2])
    if pairs > len(events[2]):
        events = (events[0], events[1], _wider(events[2], pairs))
    return events


@njit(nogil=True)
def _merge_at(i, pair, new, words, table, known, events, numbers, turn, ends, longest):
    """Merges the pair at place i if it is still there; whether it was."""
    symbols, following, before, word_of, weights = words
    a, b = pair >> 32, pair & 0xFFFFFFFF
    j = np.int64(following[i])
    if symbols[i] != a or j < 0 or symbols[j] != b:
        return
    weight = weights[word_of[i]]
    room = longest - (ends[new + 1] - ends[new])
    left = np.int64(before[i])
    if left >= 0:
        other = np.int64(symbols[left])
        _lose(table, known[1], other << 32 | a, weight)
        if ends[other + 1] - ends[other] <= room:
            _gain(table, known, events, numbers, turn, other << 32 | new, weight, left)
    right = np.int64(following[j])
    symbols[i], symbols[j] = new, -1
    following[i] = right
    if right >= 0:
        before[right] = i
        other = np.int64(symbols[right])
        _lose(table, known[1], b << 32 | other, weight)
        if ends[other + 1] - ends[other] <= room:
            _gain(table, known, events, numbers, turn, new << 32 | other, weight, i)


@njit(nogil=True)
def _linked(starts, sizes, total):
    """(following, before, word of: int32[total]) of the symbols of words; -1 at a word's ends."""
    following, before = np.empty(total, np.int32), np.empty(total, np.int32)
    word_of = np.empty(total, np.int32)
    for w in range(len(starts)):
        for i in range(starts[w], starts[w] + sizes[w]):
            following[i], before[i], word_of[i] = i + 1, i - 1, w
        if sizes[w]:
            before[starts[w]] = following[starts[w] + sizes[w] - 1] = -1
    return following, before, word_of


@njit(nogil=True)
def _is_banned(letters, ends, pair, banned, banned_ends):
    """Whether the pair spells one of the banned tokens."""
    a, b = pair >> 32, pair & 0xFFFFFFFF
    n, m = ends[a + 1] - ends[a], ends[b + 1] - ends[b]
    for t in range(len(banned_ends) - 1):
        at = banned_ends[t]
        if banned_ends[t + 1] - at == n + m:
            same = True
            for k in range(n):
                same = same and banned[at + k] == letters[ends[a] + k]
            for k in range(m):
                same = same and banned[at + n + k] == letters[ends[b] + k]
            if same:
                return True
    return False


@njit(nogil=True)
def _add_token(letters, ends, a, b, new):
    """Spells token `new` as a and b are; returns letters, grown where need be."""
    n = ends[a + 1] - ends[a] + ends[b + 1] - ends[b]
    at = ends[new]
    if at + n > len(letters):
        letters = _wider(letters, at + n)
    for t in (a, b):
        for k in range(ends[t], ends[t + 1]):
            letters[at] = letters[k]
            at += 1
    ends[new + 1] = at
    return letters


@njit(cache=True, nogil=True)
def learn(symbols, starts, sizes, weights, bases, most, least, longest, banned, banned_ends):
    """Merges: int64[n, 3] of left, right and merged id.

    symbols: int32[] of all words one after the other, 0 to bases - 1, changed in place; starts,
    sizes, weights: int64[words]; most: tokens at most, bases included; least: the count under which
    nothing is merged; longest: symbols of a token at most; banned: int32[], banned_ends:
    int64[n + 1]: tokens as symbols that no merge may make. A merge that spells a token that another
    one has made gives that token, and counts as a merge but not as a token.
    """
    table = np.empty((1 << 16, 2), np.int64)
    table[:, 0] = _FREE
    n = 1 << 14
    known = (np.empty(n, np.int64), np.empty(n, np.int64), np.full(n, -1), np.empty(n, np.int64))
    following, before, word_of = _linked(starts, sizes, len(symbols))
    words = (symbols, following, before, word_of, weights)
    letters, ends = np.empty(16 * most, np.int32), np.zeros(most + 2, np.int64)
    for t in range(bases):
        letters[t], ends[t + 1] = t, t + 1
    names = np.full(1 << (np.int64(np.log2(most + 2)) + 2), -1, np.int64)
    merges = np.empty((most + 16, 3), np.int64)
    merged, tokens = 0, bases
    # Entries of the heap: a pair, its count when last looked up, and places where it came up.
    entries, size, used, live = 0, 0, 0, 0
    e_pair, e_key, e_count = _three(1 << 14)
    e_start, e_size, heap = _three(1 << 14)
    waiting = np.zeros(1 << 14, np.int32)  # entries of a pair that wait
    where = np.empty(1 << 10, np.int32)
    # Of one turn: pair and place of every new occurrence, and the pairs that have any.
    n = 1 << 12
    events = (np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32))
    numbers = np.zeros(3, np.int64)
    turn, entry, new = 0, -1, np.int64(-1)
    while True:
        numbers[1] = numbers[2] = 0
        if turn == 0:
            for i in range(len(symbols)):
                if following[i] >= 0:
                    key = np.int64(symbols[i]) << 32 | np.int64(symbols[i + 1])
                    table, known = _room_for_pairs(table, known, numbers)
                    events = _room_for_events(events, numbers, turn)
                    _gain(table, known, events, numbers, 0, key, weights[word_of[i]], i)
        else:
            pair = e_key[entry]
            whole = waiting[e_pair[entry]] > 1
            waiting[e_pair[entry]] -= 1
            for k in range(e_start[entry], e_start[entry] + e_size[entry]):
                at = int(where[k])
                if whole:  # the other entry's places in this word are merged now, too
                    at = int(starts[word_of[at]])
                while at >= 0:
                    table, known = _room_for_pairs(table, known, numbers)
                    events = _room_for_events(events, numbers, turn)
                    _merge_at(
                        at, pair, new, words, table, known, events, numbers, turn, ends, longest
                    )
                    at = int(following[at]) if whole else -1
            live -= e_size[entry]
            e_size[entry] = 0
        # New entries, each with its places in one stretch of `where`.
        if used + numbers[1] > len(where):
            if 2 * live < used:
                where, used = _compacted(where, heap, size, e_start, e_size, live + numbers[1])
            if used + numbers[1] > len(where):
                where = _wider(where, used + numbers[1])
        if entries + numbers[2] > len(e_pair):
            n = entries + numbers[2]
            e_pair, e_key, e_count = _wider(e_pair, n), _wider(e_key, n), _wider(e_count, n)
            e_start, e_size, heap = _wider(e_start, n), _wider(e_size, n), _wider(heap, n)
        if numbers[0] > len(waiting):
            n = len(waiting)
            waiting = _wider(waiting, numbers[0])
            waiting[n:] = 0
        for k in range(numbers[2]):
            p, e = events[2][k], entries + k
            e_pair[e], e_key[e], e_count[e] = p, known[0][p], known[1][p]
            e_start[e], e_size[e] = used, 0
            used += known[3][p]
            known[3][p] = e
        if turn == 0:  # events of all the text would take more than the text
            for i in range(len(symbols)):
                if following[i] >= 0:
                    key = np.int64(symbols[i]) << 32 | np.int64(symbols[i + 1])
                    e = known[3][table[_find(table, key), 1]]
                    where[e_start[e] + e_size[e]] = i
                    e_size[e] += 1
        else:
            for k in range(numbers[1]):
                e = known[3][events[0][k]]
                where[e_start[e] + e_size[e]] = events[1][k]
                e_size[e] += 1
        for e in range(entries, entries + numbers[2]):
            if e_count[e] > 0:
                _push(heap, size, e_count, e_key, e)
                size += 1
                live += e_size[e]
                waiting[e_pair[e]] += 1
        entries += numbers[2]
        if tokens >= most:
            break
        # The next pair: the top of the heap whose count is up to date.
        entry = -1
        while size > 0 and entry < 0:
            top = heap[0]
            now = known[1][e_pair[top]]
            if e_count[top] == now:
                size -= 1
                heap[0] = heap[size]
                if _is_banned(letters, ends, e_key[top], banned, banned_ends):
                    waiting[e_pair[top]] -= 1
                    live -= e_size[top]
                else:
                    entry = top
            e_count[top] = now
            if size:
                _settle(heap, size, e_count, e_key, 0)
        if entry < 0 or e_count[entry] < max(1, least):
            break
        a, b = e_key[entry] >> 32, e_key[entry] & 0xFFFFFFFF
        slot = _spelled(letters, ends, names, a, b)
        new = names[slot]
        if new < 0:
            new = names[slot] = np.int64(tokens)
            letters = _add_token(letters, ends, a, b, new)
            tokens += 1
        if merged == len(merges):
            grown = np.empty((2 * merged, 3), np.int64)
            grown[:merged] = merges
            merges = grown
        merges[merged, 0], merges[merged, 1], merges[merged, 2] = a, b, new
        merged += 1
        turn += 1
    return merges[:merged]


@njit(nogil=True)
def _three(n):
    return np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)


@njit(nogil=True)
def _compacted(where, heap, size, e_start, e_size, room):
    """`where` with the places of waiting entries alone: (where, places in use)."""
    kept = np.empty(room * 3 // 2 + 16, where.dtype)
    at = 0
    for k in range(size):
        e = heap[k]
        s, n = e_start[e], e_size[e]
        kept[at : at + n] = where[s : s + n]
        e_start[e] = at
        at += n
    return kept, at
