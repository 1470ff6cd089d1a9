"""Words of a text that go together, by its own counts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from train.data.packing import scatter
from train.data.readers import Ints

LONGEST = 5  # words (Levine et al. 2021, section 4)
SEEN = 10  # times, and once more (AI21Labs/pmi-masking, README.md: "over 10 occurrences")
WORDS = 1 << 22  # that are counted at most: the five tables take some 300 MB

_Keys = npt.NDArray[np.uint64]


class Collocations:
    """The n-grams of 2 to 5 words that occur over 10 times and whose words go together most:
    of each length this ``share`` of them, by their PMI. That of an n-gram is the least, over all
    ways to cut it, of log p(n-gram) / product of p(part): so none is high by a part of it alone
    (Levine et al. 2021, section 3). ``documents``: ids [tokens] of each, with a bool of whether a
    word begins there; the first 4 million words count.
    """

    def __init__(
        self, documents: Iterable[tuple[Ints, npt.NDArray[np.bool_]]], share: float
    ) -> None:
        parts, total = [], 0
        for ids, begins in documents:
            parts.append(words_of(ids, begins)[0])
            total += len(parts[-1])
            if total >= WORDS:
                break
        words = np.concatenate([np.zeros(0, np.uint64), *parts])[:WORDS]
        document = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[:WORDS]
        self.keys = [np.zeros(0, np.uint64)] * 2  # of n-grams by their length, sorted
        chances: list[npt.NDArray[np.float64]] = [np.zeros(0)]  # log p of that which begins there
        for length in range(1, LONGEST + 1):
            grams = ngrams(words, length)
            inside = document[: len(grams)] == document[len(words) - len(grams) :]
            distinct, first, which, counts = np.unique(
                grams[inside], return_index=True, return_inverse=True, return_counts=True
            )
            log_p = np.full(len(words), -np.inf)
            starts = np.flatnonzero(inside)
            log_p[starts] = np.log(counts / max(1, len(starts)))[which]
            chances.append(log_p)
            if length > 1:
                often = counts > SEEN
                scores = pmi(chances, starts[first[often]], length)
                kept = np.argsort(-scores, kind="stable")[: int(share * len(scores))]
                self.keys.append(np.sort(distinct[often][kept]))

    def __len__(self) -> int:
        return sum(map(len, self.keys))

    def units(self, ids: Ints, begins: npt.NDArray[np.bool_]) -> Ints:
        """Where each unit of a text begins: a word, or words that go together, the longest first
        from the left.
        """
        words, first = words_of(ids, begins)
        longest = np.ones(len(words), np.int64)
        for length in range(2, LONGEST + 1):
            grams = ngrams(words, length)
            there = np.isin(grams, self.keys[length])
            longest[: len(grams)][there] = length
        starts, word = [], 0
        while word < len(words):
            starts.append(word)
            word += int(longest[word])
        return first[np.array(starts, np.int64)]


def words_of(ids: Ints, begins: npt.NDArray[np.bool_]) -> tuple[_Keys, Ints]:
    """A key of each word, the same for the same tokens, and its first token's place."""
    first = np.flatnonzero(begins | (np.arange(len(ids)) == 0))
    if not len(ids):
        return np.zeros(0, np.uint64), first
    inside = np.arange(len(ids)) - np.repeat(first, np.diff(first, append=len(ids)))
    keys = scatter(ids.astype(np.uint64) + (inside.astype(np.uint64) << np.uint64(32)))
    return np.add.reduceat(keys, first), first


def ngrams(words: _Keys, length: int) -> _Keys:
    """A key of each run of so many words."""
    count = max(0, len(words) - length + 1)
    total = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for place in range(length):
            total += scatter(words[place : place + count] + np.uint64(place))
    return total


def pmi(
    chances: list[npt.NDArray[np.float64]], starts: Ints, length: int
) -> npt.NDArray[np.float64]:
    """Of the n-grams that begin at ``starts``; ``chances[n]``: log p of that of n words by where it
    begins.
    """
    best = [np.zeros(len(starts))]  # of the ways to cut the first words
    for end in range(1, length + 1):
        cut = [
            best[end - last] + chances[last][starts + end - last]
            for last in range(1, min(end, length - 1) + 1)
        ]
        best.append(np.max(cut, axis=0))
    return chances[length][starts] - best[length]
