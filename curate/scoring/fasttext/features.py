"""The features of a line, as rows of the input matrix: words, character n-grams and word n-grams.

The code follows fastText 0.9.2 byte by byte: `Dictionary::getLine`, `computeSubwords`,
`addWordNgrams`, `pushHash` and `readWord`. Some behaviour is surprising: bytes are hashed as signed
numbers, n-grams end only at UTF-8 character boundaries, and the end of a line is the word `</s>`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from llmcurate.base.kernels import njit

# Bytes that end a word in readWord.
SPACE = np.zeros(256, np.bool_)
SPACE[[0, 9, 10, 11, 12, 13, 32]] = True
NEWLINE = 10
END_WORD = np.frombuffer(b"</s>", np.uint8).copy()
LABEL_PREFIX = np.frombuffer(b"__label__", np.uint8).copy()
_OPEN, _CLOSE = 60, 62  # n-grams are taken from <word>, with the brackets
# FNV-1a, 32 bits (http://www.isthe.com/chongo/tech/comp/fnv/), in int64 to stay exact.
FNV_START, _FNV_PRIME, _MASK32 = 2166136261, 16777619, 0xFFFFFFFF
_WORDS_FACTOR = 116049371  # addWordNgrams
_SCATTER = 0x9E3779B1  # Knuth's multiplicative hashing of n-gram numbers
ROOM = 256  # n-grams that kernels request at once, besides the last few
Integer = Any  # int in Python, int64 in kernels


class Words(NamedTuple):
    """The dictionary of a model and its settings, for kernels."""

    data: np.ndarray  # uint8[]: the bytes of the words
    starts: np.ndarray  # int64[entries]: starts in `data`; words come first, then labels
    ends: np.ndarray  # int64[entries]
    slots: np.ndarray  # int32[power of two]: hash table (open addressing, FNV-1a), -1 if free
    words: int  # number of entries that are words
    buckets: int
    minn: int
    maxn: int
    ngrams: int
    pruned: int  # number of n-grams with a row after pruning; -1 if not pruned
    kept: np.ndarray  # int32[power of two, 2]: hash table of (n-gram, row), -1 if free
    sieve: np.ndarray  # bool[power of two]: True at the low bits of n-grams with a row
    end: int  # entry of `</s>`, or -1


@njit(nogil=True, inline="always")
def fnv(state: Integer, byte: Integer) -> Integer:
    """Return the FNV-1a hash `state` after one more byte. The byte is taken as signed."""
    return ((state ^ (byte + (byte >> 7) * 0xFFFFFF00)) * _FNV_PRIME) & _MASK32


@njit(nogil=True)
def hashed(data: np.ndarray, start: int, end: int) -> Integer:
    state = FNV_START
    for at in range(start, end):
        state = fnv(state, np.int64(data[at]))
    return state


@njit(nogil=True)
def same(data, start, end, other, other_start, other_end):
    if end - start != other_end - other_start:
        return False
    for k in range(end - start):
        if data[start + k] != other[other_start + k]:
            return False
    return True


@njit(nogil=True, inline="always")
def entry_among(slots, starts, ends, words, data, start, end, state):
    """Return the dictionary entry of the word or label data[start:end], or -1. `data` is the text,
    `state` the hash of the word or label. The dictionary is the other arguments: `words` are the
    bytes of all entries, from `starts` to `ends`; `slots` is the hash table."""
    mask = len(slots) - 1
    slot = state & mask
    entry = np.int64(slots[slot])
    while entry >= 0 and not same(data, start, end, words, starts[entry], ends[entry]):
        slot = (slot + 1) & mask
        entry = np.int64(slots[slot])
    return entry


@njit(nogil=True, inline="always")
def row_among(first: Integer, pruned: Integer, kept: np.ndarray, ngram: Integer) -> Integer:
    """Return the matrix row of a hashed n-gram, or -1 if the n-gram was pruned. `first` is the
    number of words, whose rows come first."""
    row = ngram
    if pruned >= 0:
        mask = len(kept) - 1
        slot = ((ngram * _SCATTER) >> 12) & mask
        while kept[slot, 1] >= 0 and kept[slot, 0] != ngram:
            slot = (slot + 1) & mask
        row = np.int64(kept[slot, 1])
    return first + row if row >= 0 else -1


@njit(cache=True, nogil=True)
def entries(data: np.ndarray, at: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of `count` dictionary entries' strings: (starts, ends), each
    int64[count]. `at` is the position of the first entry. An entry is a string, NUL, a count (8
    bytes) and a type (1 byte)."""
    starts = np.empty(count, np.int64)
    ends = np.empty(count, np.int64)
    for entry in range(count):
        starts[entry] = at
        while data[at] != 0:
            at += 1
        ends[entry] = at
        at += 10
    return starts, ends


@njit(cache=True, nogil=True)
def word_slots(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the hash table `slots` of the class Words. If a string appears twice, its last entry
    counts, as in fastText."""
    size = 2
    while size < 2 * len(starts):
        size *= 2
    slots = np.full(size, -1, np.int32)
    for entry in range(len(starts)):
        slot = hashed(data, starts[entry], ends[entry]) & (size - 1)
        while slots[slot] >= 0:
            stored = slots[slot]
            if same(data, starts[entry], ends[entry], data, starts[stored], ends[stored]):
                break
            slot = (slot + 1) & (size - 1)
        slots[slot] = entry
    return slots


@njit(cache=True, nogil=True)
def kept_slots(pairs: np.ndarray) -> np.ndarray:
    """Return the hash table `kept` of the class Words. `pairs` is int32[pruned, 2]: (n-gram, row).
    If an n-gram appears twice, the last pair counts."""
    size = 2
    while size < 2 * len(pairs):
        size *= 2
    kept = np.full((size, 2), -1, np.int32)
    for pair in range(len(pairs)):
        slot = ((np.int64(pairs[pair, 0]) * _SCATTER) >> 12) & (size - 1)
        while kept[slot, 1] >= 0 and kept[slot, 0] != pairs[pair, 0]:
            slot = (slot + 1) & (size - 1)
        kept[slot, 0], kept[slot, 1] = pairs[pair, 0], pairs[pair, 1]
    return kept


@njit(cache=True, nogil=True)
def sieve_of(pairs: np.ndarray) -> np.ndarray:
    """Return the array `sieve` of the class Words, a quick test that excludes most n-grams which
    are not in the model. `pairs`: int32[n-grams, 2], the hash of each n-gram in the model and its
    matrix row. The sieve has at least 16 places per n-gram."""
    size = 1
    while size < 16 * len(pairs):
        size *= 2
    sieve = np.zeros(size, np.bool_)
    for pair in range(len(pairs)):
        sieve[pairs[pair, 0] & (size - 1)] = True
    return sieve


@njit(cache=True, nogil=True)
def end_entry(slots: np.ndarray, starts: np.ndarray, ends: np.ndarray, words: np.ndarray) -> int:
    state = hashed(END_WORD, 0, len(END_WORD))
    return entry_among(slots, starts, ends, words, END_WORD, 0, len(END_WORD), state)


@njit(nogil=True)
def next_word(data: np.ndarray, at: int, end: int) -> tuple[int, int, Integer]:
    """Return (start, end, hash) of the next word at or after byte `at` of a line. At the newline,
    which is the word `</s>`, start and end are its position. If no word or newline follows, both
    are `end`."""
    while at < end and SPACE[data[at]]:
        if data[at] == NEWLINE:
            return at, at, 0
        at += 1
    start = at
    state = FNV_START
    while at < end and not SPACE[data[at]]:
        state = fnv(state, np.int64(data[at]))
        at += 1
    return start, at, state


@njit(nogil=True)
def begins_as_label(data: np.ndarray, start: int, end: int) -> bool:
    """Return True if the word data[start:end] begins with fastText's prefix of labels. fastText
    takes such a word as a label if the word is not in its dictionary."""
    size = len(LABEL_PREFIX)
    return end - start >= size and same(data, start, start + size, LABEL_PREFIX, 0, size)


@njit(nogil=True, inline="always")
def ngrams_from(
    minn, maxn, buckets, first, pruned, kept, sieve, data, start, end, at, grams, count
):
    """Find the n-grams of <word> that have a row in the model's matrix, from byte `at` of <word>
    on. <word> is data[start:end] between `<` and `>`.

    Write (matrix row, start, end) of each n-gram to `grams` (int64[maxn + ROOM, 3]), beginning at
    grams[count], as many as fit. Return (new count, next `at`). All n-grams are found when `at` is
    the size of <word>. The first seven arguments are fields of the class Words: `first` is the
    number of words, the others have the field's name."""
    sifts = len(sieve) - 1
    last = end - start + 1  # of <word>
    while at <= last and count + maxn <= len(grams):
        begin = at
        at += 1
        if 0 < begin < last and data[start + begin - 1] & 0xC0 == 0x80:
            continue
        state = FNV_START
        to = begin
        for n in range(1, maxn + 1):
            if to > last:
                break
            if to == 0:
                state = fnv(state, _OPEN)
            elif to == last:
                state = fnv(state, _CLOSE)
            else:
                state = fnv(state, np.int64(data[start + to - 1]))
            to += 1
            while to < last and data[start + to - 1] & 0xC0 == 0x80:
                state = fnv(state, np.int64(data[start + to - 1]))
                to += 1
            if n < minn or (n == 1 and (begin == 0 or to > last)):
                continue
            ngram = np.int64(np.uint32(state) % np.uint32(buckets))
            if pruned >= 0 and not sieve[ngram & sifts]:
                continue
            row = row_among(first, pruned, kept, ngram)
            if row >= 0:
                grams[count, 0] = row
                grams[count, 1] = begin
                grams[count, 2] = to
                count += 1
    return count, at


@njit(nogil=True, inline="always")
def word_ngram(state: np.uint64, after: int) -> np.uint64:
    """Return the hash of a word n-gram of hash `state` with one more word of hash `after`."""
    return state * np.uint64(_WORDS_FACTOR) + signed(after)


@njit(nogil=True, inline="always")
def signed(state: int) -> np.uint64:
    """Convert a 32-bit hash to uint64 with sign extension, as fastText does."""
    return np.uint64(state - ((state >> 31) << 32))


@njit(nogil=True, inline="always")
def bucket_of(buckets: Integer, state: np.uint64) -> Integer:
    """Return the bucket, from 0 to `buckets` - 1, of a word n-gram with the hash `state`."""
    return np.int64(state % np.uint64(buckets))
