"""The mean of a line's rows, and a memory of words that makes most of them one addition each.

Words repeat, so the sum of a word's rows is kept. fastText adds row by row in float32; sums of
sums differ from that in the last digits, so `exactly` adds as it does, for where digits decide.

A line is read in stretches of words, and what is new in one is summed up by one call: a kernel
that is given a tuple of arrays counts references to each, which costs more than a word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from curate.scoring.fasttext.features import (
    END_WORD,
    ROOM,
    begins_as_label,
    bucket_of,
    entry_among,
    hashed,
    next_word,
    ngrams_from,
    row_among,
    same,
    signed,
    word_ngram,
)
from curate.scoring.fasttext.reading import Rows, Weights
from llmcurate.base.kernels import njit

_LONGEST = 64  # bytes of a word that is worth remembering
_BYTES = 16 << 20  # of remembered sums
_WORDS = 1 << 18
_STRETCH = 1 << 12  # words
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


class Scratch(NamedTuple):
    """Room for one line at a time. spots, fresh: int64[stretch, 3], start, end and hash of words;
    places: int64[stretch]; counts: int64[stretch]; ngrams: as in ngrams_from; hashes: int64[words
    of the line] where the model has n-grams of words."""

    spots: np.ndarray
    fresh: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    ngrams: np.ndarray
    hashes: np.ndarray


@njit(nogil=True, allocates=True)
def scratch_for(model: Weights, kept: Memory, ends: np.ndarray) -> Scratch:
    """Room for the longest of some lines."""
    most = 0
    for row in range(len(ends) - 1):
        most = max(most, ends[row + 1] - ends[row])
    # A quarter of the memory: then what is emptied has room for a stretch of the longest words.
    stretch = min(_STRETCH, len(kept.hash) // 4)
    return Scratch(
        np.empty((stretch, 3), np.int64),
        np.empty((stretch, 3), np.int64),
        np.empty(stretch, np.int64),
        np.empty(stretch, np.int64),
        np.empty((ROOM + model.words.maxn, 3), np.int64),
        np.empty(most // 2 + 2 if model.words.ngrams > 1 else 0, np.int64),
    )


@njit(nogil=True)
def add_rows(rows: Rows, numbers: np.ndarray, count: int, total: np.ndarray) -> None:
    """Adds the rows that numbers[:count, 0] names to total: float32[dim]."""
    dense, codes, centroids, norms = rows.dense, rows.codes, rows.centroids, rows.norms
    each, dim = rows.each, len(total)
    if len(dense):
        for n in range(count):
            row = numbers[n, 0]
            for d in range(dim):
                total[d] += dense[row, d]
        return
    for n in range(count):
        row = numbers[n, 0]
        norm = norms[row]
        for part in range(codes.shape[1]):
            begin = part * each
            size = min(each, dim - begin)
            at = 256 * begin + np.int64(codes[row, part]) * size
            for d in range(size):
                total[begin + d] += norm * centroids[at + d]


@njit(nogil=True)
def _add_words(
    model: Weights,
    data: np.ndarray,
    spots: np.ndarray,
    many: int,
    grams: np.ndarray,
    counts: np.ndarray,
    sums: np.ndarray,
    apart: bool,
) -> None:
    """Adds the rows of words spots[:many] to sums: float32[many, dim] if apart, or to sums[0].

    counts: int64[many] is filled with how many they are, or _LABEL_WORD.
    """
    words, rows = model.words, model.rows
    slots, starts, ends, word_bytes = words.slots, words.starts, words.ends, words.data
    kept, sieve, dense = words.kept, words.sieve, rows.dense
    first, buckets, pruned = words.words, words.buckets, words.pruned
    minn, maxn, dim = words.minn, words.maxn, sums.shape[1]
    for i in range(many):
        start, end, to = spots[i, 0], spots[i, 1], i if apart else 0
        if start == end:
            entry = words.end
        else:
            entry = entry_among(slots, starts, ends, word_bytes, data, start, end, spots[i, 2])
            if entry >= first or (entry < 0 and begins_as_label(data, start, end)):
                counts[i] = _LABEL_WORD
                continue
        total = n = np.int64(0)
        if entry >= 0:
            grams[0, 0] = entry
            n = 1
        at = 0
        if (
            maxn == 0
            or start == end
            or same(data, start, end, END_WORD, np.int64(0), len(END_WORD))
        ):
            at = end - start + 2
        while True:
            if at < end - start + 2:
                n, at = ngrams_from(
                    minn, maxn, buckets, first, pruned, kept, sieve, data, start, end, at, grams, n
                )
            if len(dense):
                for k in range(n):
                    row = grams[k, 0]
                    for d in range(dim):
                        sums[to, d] += dense[row, d]
            else:
                add_rows(rows, grams, n, sums[to])
            total += n
            n = np.int64(0)
            if at >= end - start + 2:
                break
        counts[i] = total


@njit(nogil=True)
def _place(spots: np.ndarray, row: int, begin: int, end: int, state: int) -> None:
    """spots[row] = begin, end, state, which takes longer to compile."""
    spots[row, 0], spots[row, 1], spots[row, 2] = begin, end, state


@njit(nogil=True)
def _places(
    kept: Memory, data: np.ndarray, spots: np.ndarray, many: int, room: Scratch
) -> tuple[int, int, int]:
    """(remembered, fresh, others): fills room.places with where each word's sum is, -1 where it is
    not remembered.

    Words from `remembered` on are new: their sums have to be made, of the first `fresh` words of
    room.fresh. The last `others` of room.fresh are too long, or no word but the end of the line.
    """
    slots, hashes, starts, pool = kept.slots, kept.hash, kept.at, kept.pool
    used, fresh, places = kept.used, room.fresh, room.places
    before = used[0]
    if before + many > len(hashes) or starts[before] + many * _LONGEST > len(pool):
        slots[:] = -1
        before = 0
    mask = len(slots) - 1
    after, others = before, 0
    for i in range(many):
        begin, end, state = spots[i, 0], spots[i, 1], spots[i, 2]
        if end - begin > _LONGEST or begin == end:
            places[i] = -1
            others += 1
            _place(fresh, len(fresh) - others, begin, end, state)
            continue
        slot = (state ^ (state >> 16)) & mask
        place = np.int64(slots[slot])
        while place >= 0 and not (
            hashes[place] == state
            and same(data, begin, end, pool, starts[place], starts[place + 1])
        ):
            slot = (slot + 1) & mask
            place = np.int64(slots[slot])
        if place < 0:
            place = after
            at = starts[place]
            for k in range(end - begin):
                pool[at + k] = data[begin + k]
            starts[place + 1] = at + end - begin
            hashes[place] = state
            slots[slot] = place
            _place(fresh, after - before, begin, end, state)
            after += 1
        places[i] = place
    used[0] = after
    return before, after - before, others


@njit(nogil=True)
def _stretch(data: np.ndarray, at: int, end: int, spots: np.ndarray) -> tuple[int, int, bool]:
    """(words, at, ended): fills spots with the next words of a line, as many as fit; where to go
    on; whether the line has ended. The end of a line is a word of no bytes."""
    many = 0
    while many < len(spots):
        begin, at, state = next_word(data, at, end)
        if begin == end:
            return many, end, True
        if begin == at:
            state = hashed(END_WORD, np.int64(0), len(END_WORD))
        _place(spots, many, begin, at, state)
        many += 1
        if begin == at or same(data, begin, at, END_WORD, np.int64(0), len(END_WORD)):
            return many, at, True
    return many, at, False


@njit(nogil=True, allocates=True)
def hidden_of(
    model: Weights,
    kept: Memory,
    room: Scratch,
    data: np.ndarray,
    start: int,
    end: int,
    exactly: bool,
    hidden: np.ndarray,
) -> int:
    """Fills hidden: float32[dim] with the mean of a line's rows; how many rows there are.

    exactly: added up in fastText's order. room is overwritten.
    """
    dim = len(hidden)
    spots, places, counts, hashes = room.spots, room.places, room.counts, room.hashes
    features, sums = kept.features, kept.sums
    whole = hidden.reshape(1, dim)
    total = np.zeros(dim)
    hidden[:] = 0
    count = seen = np.int64(0)  # a plain 0 is a type of its own, compiled for in vain
    ngrams = model.words.ngrams
    at, ended = start, False
    while at < end and not ended:
        many, at, ended = _stretch(data, at, end, spots)
        others = 0
        if exactly:
            _add_words(model, data, spots, many, room.ngrams, counts, whole, np.bool_(False))
        else:
            before, new, others = _places(kept, data, spots, many, room)
            if new:
                sums[before : before + new] = 0
                _add_words(
                    model,
                    data,
                    room.fresh,
                    new,
                    room.ngrams,
                    features[before : before + new],
                    sums[before : before + new],
                    np.bool_(True),
                )
            if others:
                rest = room.fresh[len(spots) - others :]  # the last comes first
                _add_words(model, data, rest, others, room.ngrams, counts, whole, np.bool_(False))
        for i in range(many):
            if exactly:
                n = counts[i]
            elif places[i] < 0:
                others -= 1
                n = counts[others]
            else:
                n = features[places[i]]
                if n > 0:
                    for d in range(dim):
                        total[d] += sums[places[i], d]
            if n >= 0:
                count += n
                if ngrams > 1:
                    hashes[seen] = spots[i, 2]
                    seen += 1
    if seen > 1:
        count += _add_ngrams(model, hashes, seen, room.ngrams, hidden)
    if count:
        share = np.float32(1.0 / count)
        for d in range(dim):
            hidden[d] = np.float32(total[d] + hidden[d]) * share
    return count


@njit(nogil=True)
def _add_ngrams(
    model: Weights, hashes: np.ndarray, seen: int, grams: np.ndarray, total: np.ndarray
) -> int:
    words = model.words
    kept, pruned, first = words.kept, words.pruned, words.words
    buckets, ngrams = words.buckets, words.ngrams
    count = n = np.int64(0)
    for i in range(seen):
        gram = signed(hashes[i])
        for j in range(i + 1, min(seen, i + ngrams)):
            gram = word_ngram(gram, hashes[j])
            row = row_among(first, pruned, kept, bucket_of(buckets, gram))
            if row < 0:
                continue
            if n == len(grams):
                add_rows(model.rows, grams, n, total)
                n = np.int64(0)
            grams[n, 0] = row
            n += 1
            count += 1
    add_rows(model.rows, grams, n, total)
    return count
