"""The n-grams of a model in hash tables, a level an order, and texts scored against them.

An entry of level n is two numbers of 64 bits: the key + 1 (0: empty), and log10 probability and
back-off as two float32. The key is exact: the slot of the n-gram's last n - 1 words in the level
below, times 2^32, plus its first word. Levels lie behind each other in one array; words themselves
are level 1.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from curate.perplexity.keys import BOS
from curate.text.hashing import mix

LOAD = 1.5  # slots an n-gram
MOST_SLOTS = (1 << 32) - 2
NOT_THERE = np.int64(-1)
_BLOCK = 1024  # words scored together: what they need stays in the first caches
_32 = np.uint64(32)
_ONE = np.uint64(1)


def slots_for(count: int) -> int:
    """Slots of a level with so many n-grams; one is always free."""
    return int(count * LOAD) + 1


@njit(nogil=True, inline="always")
def _home(key, slots):
    """The first slot to look at."""
    return np.int64(((mix(key) >> _32) * np.uint64(slots)) >> _32)


@njit(nogil=True)
def find_entry(entries, first, slots, key):
    """The slot of the key in the level that begins at `first`; NOT_THERE."""
    at = _home(key, slots)
    for _ in range(slots):
        have = entries[2 * (first + at)]
        if have == key + _ONE:
            return at
        if have == 0:
            return NOT_THERE
        at += 1
        if at == slots:
            at = 0
    return NOT_THERE


@njit(nogil=True)
def _slot_of(entries, firsts, words, i, skip):
    """The slot of words[i, skip:] in its level; NOT_THERE."""
    n = words.shape[1]
    slot = np.int64(words[i, n - 1])
    for k in range(n - 2, skip - 1, -1):
        level = n - k
        key = (np.uint64(slot) << _32) | np.uint64(words[i, k])
        first, slots = firsts[level], firsts[level + 1] - firsts[level]
        slot = find_entry(entries, first, slots, key)
        if slot < 0:
            return NOT_THERE
    return slot


@njit(cache=True, nogil=True)
def insert(entries, values, firsts, words, prob, backoff):
    """Adds n-grams to their level: words: uint32[rows, n]; prob, backoff: float32[rows], log10.

    firsts: int64[order + 2], where each level begins, in entries; values: float32 view of entries.
    Returns -1, or the row of the first n-gram whose last n - 1 words are no n-gram of the level
    below, or ~row + (-1) of one that is there already (below -1).
    """
    n = words.shape[1]
    first, slots = firsts[n], firsts[n + 1] - firsts[n]
    for i in range(len(words)):
        below = _slot_of(entries, firsts, words, i, 1)
        if below < 0:
            return i
        key = (np.uint64(below) << _32) | np.uint64(words[i, 0])
        at = _home(key, slots)
        while entries[2 * (first + at)] != 0:
            if entries[2 * (first + at)] == key + _ONE:
                return -2 - i
            at += 1
            if at == slots:
                at = 0
        entries[2 * (first + at)] = key + _ONE
        values[4 * (first + at) + 2] = prob[i]
        values[4 * (first + at) + 3] = backoff[i]
    return -1


@njit(cache=True, nogil=True)
def missing(entries, firsts, words):
    """Row of the first of words: uint32[rows, n] that is no n-gram of the tables; -1."""
    for i in range(len(words)):
        if _slot_of(entries, firsts, words, i, 0) < 0:
            return i
    return -1


@njit(cache=True, nogil=True)
def level_words(entries, firsts, n, vocab, out, prob, backoff, values):
    """Fills out: uint32[rows, n] with the n-grams of a level in the order of its slots, and their
    prob, backoff: float32[rows]. Returns their number, or -1 where entries point nowhere."""
    rows = 0
    for at in range(firsts[n + 1] - firsts[n]):
        have = entries[2 * (firsts[n] + at)]
        if have == 0:
            continue
        if rows == len(out):
            return -1
        level, slot = n, at
        for k in range(n - 1):
            if level > 1 and slot >= firsts[level + 1] - firsts[level]:
                return -1
            key = entries[2 * (firsts[level] + slot)] - _ONE
            word = key & np.uint64(0xFFFFFFFF)
            if entries[2 * (firsts[level] + slot)] == 0 or word >= np.uint64(vocab):
                return -1
            out[rows, k] = np.uint32(word)
            slot = np.int64(key >> _32)
            level -= 1
        if slot >= vocab:
            return -1
        out[rows, n - 1] = np.uint32(slot)
        prob[rows] = values[4 * (firsts[n] + at) + 2]
        backoff[rows] = values[4 * (firsts[n] + at) + 3]
        rows += 1
    return rows


@njit(nogil=True)
def _level(entries, values, firsts, n, ids, count, level, slot, prob, backs, homes, todo):
    """Looks up the n-grams of order n that end at words whose (n-1)-gram is there."""
    first, slots = firsts[n], firsts[n + 1] - firsts[n]
    waiting = 0
    for i in range(n - 1, count):
        todo[waiting] = i
        waiting += int(level[i] == n - 1) & int(level[i - 1] >= n - 1) & int(ids[i] != BOS)
    for j in range(waiting):
        i = todo[j]
        homes[j] = _home((np.uint64(slot[i]) << _32) | np.uint64(ids[i - n + 1]), slots)
    # Loads that wait for nothing: the memory answers many at once.
    met = np.uint64(0)
    for j in range(waiting):
        met ^= entries[2 * (first + homes[j])]
    for j in range(waiting):
        i = todo[j]
        key = (np.uint64(slot[i]) << _32) | np.uint64(ids[i - n + 1])
        at = homes[j]
        for _ in range(slots):
            have = entries[2 * (first + at)]
            if have == key + _ONE:
                level[i] = n
                slot[i] = at
                prob[i] = values[4 * (first + at) + 2]
                backs[n, i] = values[4 * (first + at) + 3]
                break
            if have == 0:
                break
            at += 1
            if at == slots:
                at = 0
    return met


@njit(cache=True, nogil=True)
def score(entries, values, firsts, word_prob, word_backoff, ids, ends, sums, floats, met):
    """log10 probabilities of sentences, each between <s> and </s>.

    ids: uint32[words] below the vocabulary's size; ends: int64[sentences]; sums: float64[sentences]
    and floats: float32[sentences], the same summed as KenLM's binding does, are filled in.
    met: uint64[1], for what is only loaded ahead.
    """
    order = len(firsts) - 2
    room, begin = np.int64(_BLOCK), np.int64(0)
    for s in range(len(ends)):
        room = max(room, ends[s] - begin + 2)
        begin = ends[s]
    line = np.empty(room, np.uint32)
    level, slot = np.empty(room, np.uint8), np.empty(room, np.int64)
    prob, backs = np.empty(room, np.float32), np.zeros((order + 1, room), np.float32)
    homes, todo = np.empty(room, np.int64), np.empty(room + 1, np.int64)
    s, begin = 0, np.int64(0)
    while s < len(ends):
        first_sentence, count = s, 0
        while s < len(ends) and (count == 0 or count + ends[s] - begin + 2 <= _BLOCK):
            line[count] = BOS
            for i in range(begin, ends[s]):
                line[count + 1 + i - begin] = ids[i]
            count += ends[s] - begin + 2
            line[count - 1] = 2
            begin = ends[s]
            s += 1
        for i in range(count):
            word = line[i]
            level[i] = 1
            slot[i] = word
            prob[i] = word_prob[word]
            backs[1, i] = word_backoff[word]
        for n in range(2, order + 1):
            met[0] ^= _level(
                entries, values, firsts, n, line, count, level, slot, prob, backs, homes, todo
            )
        sentence = first_sentence - 1
        for i in range(count):
            if line[i] == BOS:
                sentence += 1
                sums[sentence] = 0.0
                floats[sentence] = 0.0
                continue
            word_log = prob[i]
            for k in range(int(level[i]), min(int(level[i - 1]), order - 1) + 1):
                word_log += backs[k, i - 1]
            sums[sentence] += word_log
            floats[sentence] += word_log
