"""A model's tables from its n-grams, level by level, and its n-grams back from the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from curate.scoring.perplexity.table import insert, level_words, missing, slots_for

# (words: uint32[rows, n], prob: float32[rows], backoff: float32[rows]), log10
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
Allocate = Callable[[int], np.ndarray]


class NotClosed(Exception):
    """An n-gram without a part of it, or one that is there twice; words: uint32[n]; why: text."""

    def __init__(self, words: np.ndarray, why: str) -> None:
        super().__init__(why)
        self.words, self.why = words, why


def starts(counts: Sequence[int]) -> np.ndarray:
    """int64[order + 2]: where each level begins, in entries; those of words take none."""
    sizes = [0, 0, *(slots_for(n) for n in counts[1:])]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def tables(
    counts: Sequence[int], levels: Iterable[Iterable[Rows]], allocate: Allocate
) -> tuple[np.ndarray, np.ndarray]:
    """(firsts, entries: uint64[]) of the levels 2 and up, each in batches; counts: n-grams of each
    order. allocate: makes an array of zeros. NotClosed where an n-gram lacks a part."""
    firsts = starts(counts)
    entries = allocate(2 * int(firsts[-1]))
    values = entries.view(np.float32)
    for level in levels:
        for words, prob, backoff in level:
            left = np.ascontiguousarray(words[:, :-1])
            lacks = missing(entries, firsts, left) if words.shape[1] > 2 else -1
            if lacks >= 0:
                raise NotClosed(words[lacks], "its beginning is no n-gram of the model")
            at = insert(entries, values, firsts, words, prob, backoff)
            if at < -1:
                raise NotClosed(words[-2 - at], "it is there twice")
            if at >= 0:
                raise NotClosed(words[at], "its end is no n-gram of the model")
    return firsts, entries


def level(entries: np.ndarray, firsts: np.ndarray, counts: Sequence[int], n: int) -> Rows:
    """The n-grams of a level above 1, sorted by their words. ValueError: damaged entries."""
    rows = counts[n - 1]
    words = np.empty((rows, n), np.uint32)
    prob, backoff = np.empty(rows, np.float32), np.empty(rows, np.float32)
    values = entries.view(np.float32)
    found = level_words(entries, firsts, n, counts[0], words, prob, backoff, values)
    if found != rows:
        raise ValueError(f"the {n}-grams are damaged")
    order = np.lexsort(tuple(words[:, k] for k in range(n - 1, -1, -1)))
    return words[order], prob[order], backoff[order]


def batches(rows: Rows, size: int) -> Iterator[Rows]:
    """The same in parts."""
    for a in range(0, len(rows[0]), size):
        yield rows[0][a : a + size], rows[1][a : a + size], rows[2][a : a + size]
