"""The mean of a line's rows, and a memory of words that makes most of them one addition each.

Words repeat, so the sum of a word's rows is kept. fastText adds row by row in float32; sums of
sums differ from that in the last digits, so `exactly` adds as it does, for where digits decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from curate.fasttext.features import (
    END_WORD,
    Integer,
    bucket_of,
    entry_of,
    hashed,
    is_label,
    next_word,
    ngrams_from,
    row_of,
    same,
    signed,
    word_ngram,
)
from curate.fasttext.reading import Rows, Weights

_LONGEST = 64  # bytes of a word that is worth remembering
_BYTES = 16 << 20  # of remembered sums
_WORDS = 1 << 18
_LABEL_WORD = -1  # instead of a number of features: a label, which counts for nothing


class Memory(NamedTuple):
    """Sums of words seen so far. Full, it is emptied: what is in it changes no result.

    slots: int32[power of two], open addressing by hash, -1 where free; hash: int64[words]; at:
    int64[words + 1], where each one's bytes begin in pool: uint8[]; features: int64[words], rows
    summed up; sums: float32[words, dim]; used: int64[1], words remembered.
    """

    slots: np.ndarray
    hash: np.ndarray
    at: np.ndarray
    features: np.ndarray
    sums: np.ndarray
    pool: np.ndarray
    used: np.ndarray


def memory(dim: int, most: int = _WORDS) -> Memory:
    """An empty memory of at most so many words, fewer where vectors are long."""
    words = 64
    while words < most and words * 2 * dim * 4 <= _BYTES:
        words *= 2
    return Memory(
        np.full(2 * words, -1, np.int32),
        np.empty(words, np.int64),
        np.zeros(words + 1, np.int64),
        np.empty(words, np.int64),
        np.empty((words, dim), np.float32),
        np.empty(words * 16, np.uint8),
        np.zeros(1, np.int64),
    )


@njit(nogil=True)
def add_row(rows: Rows, row: int, total: np.ndarray) -> None:
    """Adds a row of the input matrix to total: float32[dim]."""
    dim = len(total)
    if len(rows.dense):
        dense = rows.dense[row]
        for d in range(dim):
            total[d] += dense[d]
        return
    codes, centroids, norm = rows.codes[row], rows.centroids, rows.norms[row]
    for part in range(len(codes)):
        begin = part * rows.each
        size = min(rows.each, dim - begin)
        at = 256 * begin + np.int64(codes[part]) * size
        for d in range(size):
            total[begin + d] += norm * centroids[at + d]


@njit(nogil=True)
def _add_rows(rows: Rows, found: np.ndarray, count: int, total: np.ndarray) -> None:
    """Adds the rows that found[:count, 0] names."""
    dense, dim = rows.dense, len(total)
    if len(dense):
        for n in range(count):
            row = found[n, 0]
            for d in range(dim):
                total[d] += dense[row, d]
        return
    for n in range(count):
        add_row(rows, found[n, 0], total)


@njit(nogil=True)
def add_word(
    model: Weights,
    data: np.ndarray,
    start: int,
    end: int,
    state: Integer,
    scratch: np.ndarray,
    total: np.ndarray,
) -> int:
    """Adds a word's rows to total: float32[dim]; how many, or _LABEL_WORD. scratch: as `found` of
    ngrams_from, is overwritten."""
    words = model.words
    entry = entry_of(words, data, start, end, state)
    if is_label(words, data, start, end, entry):
        return _LABEL_WORD
    count = 0
    if entry >= 0:
        add_row(model.rows, entry, total)
        count = 1
    if words.maxn == 0 or same(data, start, end, END_WORD, 0, len(END_WORD)):
        return count
    at = 0
    while at < end - start + 2:
        many, at = ngrams_from(words, data, start, end, at, scratch)
        _add_rows(model.rows, scratch, many, total)
        count += many
    return count


@njit(nogil=True)
def _remember(
    model: Weights,
    kept: Memory,
    data: np.ndarray,
    start: int,
    end: int,
    state: Integer,
    scratch: np.ndarray,
) -> int:
    """The place of a word that the memory lacks, made for it."""
    if kept.used[0] == len(kept.hash) or kept.at[kept.used[0]] + end - start > len(kept.pool):
        kept.slots[:] = -1
        kept.used[0] = 0
    mask = len(kept.slots) - 1
    slot = (state ^ (state >> 16)) & mask
    while kept.slots[slot] >= 0:
        slot = (slot + 1) & mask
    place = kept.used[0]
    at = kept.at[place]
    for k in range(end - start):
        kept.pool[at + k] = data[start + k]
    kept.at[place + 1] = at + end - start
    kept.hash[place] = state
    total = kept.sums[place]
    total[:] = 0
    kept.features[place] = add_word(model, data, start, end, state, scratch, total)
    kept.slots[slot] = place
    kept.used[0] = place + 1
    return place


@njit(nogil=True)
def hidden_of(
    model: Weights,
    kept: Memory,
    data: np.ndarray,
    start: int,
    end: int,
    exactly: bool,
    scratch: np.ndarray,
    hashes: np.ndarray,
    hidden: np.ndarray,
) -> int:
    """Fills hidden: float32[dim] with the mean of a line's rows; how many rows there are.

    exactly: added up in fastText's order. hashes: int64[words of the line] where the model has
    n-grams of words, overwritten as scratch is.
    """
    words = model.words
    slots, known, starts, pool = kept.slots, kept.hash, kept.at, kept.pool
    features, sums = kept.features, kept.sums
    mask = len(slots) - 1
    dim = len(hidden)
    total = np.zeros(dim)
    hidden[:] = 0
    count = 0
    seen = 0
    at = start
    while at < end:
        begin, at, state = next_word(data, at, end)
        ended = begin == at
        if ended and begin == end:
            break
        if ended:
            state = hashed(END_WORD, 0, len(END_WORD))
            many = add_word(model, END_WORD, 0, len(END_WORD), state, scratch, hidden)
        elif exactly or at - begin > _LONGEST:
            many = add_word(model, data, begin, at, state, scratch, hidden)
            ended = same(data, begin, at, END_WORD, 0, len(END_WORD))
        else:
            slot = (state ^ (state >> 16)) & mask
            place = int(slots[slot])
            while place >= 0 and not (
                known[place] == state
                and same(data, begin, at, pool, starts[place], starts[place + 1])
            ):
                slot = (slot + 1) & mask
                place = int(slots[slot])
            if place < 0:
                place = _remember(model, kept, data, begin, at, state, scratch)
            many = features[place]
            if many > 0:
                for d in range(dim):
                    total[d] += sums[place, d]
            ended = same(data, begin, at, END_WORD, 0, len(END_WORD))
        if many >= 0:
            count += many
            if words.ngrams > 1:
                hashes[seen] = state
                seen += 1
        if ended:
            break
    for i in range(seen):
        gram = signed(hashes[i])
        for j in range(i + 1, min(seen, i + words.ngrams)):
            gram = word_ngram(gram, hashes[j])
            row = row_of(words, bucket_of(words, gram))
            if row >= 0:
                add_row(model.rows, row, hidden)
                count += 1
    if count:
        share = np.float32(1.0 / count)
        for d in range(dim):
            hidden[d] = np.float32(total[d] + hidden[d]) * share
    return count
