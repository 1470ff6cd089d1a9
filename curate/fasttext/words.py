"""The mean of a line's rows where words have no n-grams of characters: fastText's own sum, faster.

Then a line is its words and the n-grams of them, a row each. The rows are listed first and added up
several at a time: an element of the sum still gets them one by one, in fastText's order, but stays
in a register meanwhile, and the machine waits for several rows at once, which lie far apart in a
matrix of hundreds of megabytes.
"""

from __future__ import annotations

import numpy as np

from curate.fasttext.features import (
    END_WORD,
    begins_as_label,
    bucket_of,
    entry_among,
    hashed,
    next_word,
    row_among,
    same,
    signed,
    word_ngram,
)
from curate.fasttext.hidden import add_rows
from curate.fasttext.reading import Rows, Weights
from kernel_cache import njit

LISTED = 1024  # rows listed before they are added up


@njit(nogil=True)
def _sum(rows: Rows, which: np.ndarray, count: int, total: np.ndarray) -> None:
    """Adds the rows which[:count, 0] to total: float32[dim]."""
    dense, at = rows.dense, 0
    if len(dense):
        while at + 8 <= count:
            a, b = dense[which[at, 0]], dense[which[at + 1, 0]]
            c, d = dense[which[at + 2, 0]], dense[which[at + 3, 0]]
            e, f = dense[which[at + 4, 0]], dense[which[at + 5, 0]]
            g, h = dense[which[at + 6, 0]], dense[which[at + 7, 0]]
            for i in range(len(total)):
                total[i] = total[i] + a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i]
            at += 8
    add_rows(rows, which[at:], count - at, total)


@njit(nogil=True)
def mean_of_words(
    model: Weights,
    data: np.ndarray,
    start: int,
    end: int,
    hashes: np.ndarray,
    which: np.ndarray,
    hidden: np.ndarray,
) -> int:
    """Fills hidden: float32[dim] with the mean of a line's rows; how many rows there are.

    For models without n-grams of characters. hashes: int64[words of the line, where the model has
    n-grams of words] and which: int64[rows listed at a time, 1] are overwritten.
    """
    words = model.words
    slots, starts, ends, known = words.slots, words.starts, words.ends, words.data
    first, pruned, kept = words.words, words.pruned, words.kept
    hidden[:] = 0
    count = listed = seen = np.int64(0)
    at = start
    while at < end:
        begin, at, state = next_word(data, at, end)
        ended = begin == at
        if ended and begin == end:
            break
        if ended:
            state, entry = hashed(END_WORD, np.int64(0), len(END_WORD)), words.end
        else:
            entry = entry_among(slots, starts, ends, known, data, begin, at, state)
            ended = same(data, begin, at, END_WORD, 0, len(END_WORD))
        if entry < first and (entry >= 0 or not begins_as_label(data, begin, at)):
            if entry >= 0:
                if listed == len(which):
                    _sum(model.rows, which, listed, hidden)
                    count, listed = count + listed, 0
                which[listed, 0] = entry
                listed += 1
            if words.ngrams > 1:
                hashes[seen] = state
                seen += 1
        if ended:
            break
    for i in range(seen):
        gram = signed(hashes[i])
        for j in range(i + 1, min(seen, i + words.ngrams)):
            gram = word_ngram(gram, hashes[j])
            row = row_among(first, pruned, kept, bucket_of(words.buckets, gram))
            if row >= 0:
                if listed == len(which):
                    _sum(model.rows, which, listed, hidden)
                    count, listed = count + listed, 0
                which[listed, 0] = row
                listed += 1
    _sum(model.rows, which, listed, hidden)
    count += listed
    if count:
        share = np.float32(1.0 / count)
        for i in range(len(hidden)):
            hidden[i] *= share
    return count
