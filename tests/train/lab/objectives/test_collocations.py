"""Words that go together: the table against a plain count, and whole n-grams hidden as one."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.lab.objectives.masked_examples import VOCABULARY, piece
from train.lab.objectives.masked import LONGEST_NGRAM, Collocations, Masked, ngrams, words_of
from train.objective_settings import Masked as Settings
from train.objectives.example import IGNORED, Draws

CORPUS = [
    " ".join(
        draw.choice(["new york city", "in the", "the cat", "a dog", "ran", "in", "york"])
        for _ in range(120)
    ).split()
    for draw in map(random.Random, range(8))
]
IDS = {word: number for number, word in enumerate(sorted({w for text in CORPUS for w in text}))}


def encoded(texts: list[list[str]]):
    for text in texts:
        ids = np.array([IDS[word] for word in text])
        yield ids, np.ones(len(ids), np.bool_)


def plain(texts: list[list[str]], length: int) -> dict[tuple[str, ...], float]:
    """The PMI of n-grams that occur more than ten times, by counting."""
    counts = {
        n: Counter(g for text in texts for g in zip(*(text[k:] for k in range(n)), strict=False))
        for n in range(1, length + 1)
    }
    p = {gram: c / sum(of.values()) for of in counts.values() for gram, c in of.items()}
    scores = {}
    for gram, count in counts[length].items():
        if count > 10:
            cuts = (
                c for k in range(1, length) for c in itertools.combinations(range(1, length), k)
            )
            scores[gram] = min(
                math.log(p[gram])
                - sum(
                    math.log(p[gram[a:b]]) for a, b in zip((0, *cut), (*cut, length), strict=True)
                )
                for cut in cuts
            )
    return scores


@pytest.mark.parametrize("length", range(2, LONGEST_NGRAM + 1))
def test_the_table_is_that_of_a_plain_count(length):
    share = 0.3
    table = Collocations(encoded(CORPUS), share)
    scores = plain(CORPUS, length)
    wanted = sorted(scores.values(), reverse=True)[: int(share * len(scores))]
    kept = {
        gram
        for gram in scores
        if ngrams(words_of(*next(encoded([list(gram)])))[0], length)[0] in table.keys[length]
    }
    assert len(kept) == len(wanted) == len(table.keys[length])
    assert sorted((scores[g] for g in kept), reverse=True) == pytest.approx(wanted)


def test_what_goes_together_is_found_and_the_longest_is_taken():
    table = Collocations(encoded(CORPUS), 0.2)
    ids, begins = next(encoded(["in the new york city a dog ran".split()]))
    assert {2, 5} <= set(table.units(ids, begins).tolist())
    assert 3 not in table.units(ids, begins) and 4 not in table.units(ids, begins)


@given(
    ids=st.lists(st.integers(0, 5), max_size=40),
    begins=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_units_begin_with_words_whatever_the_text(ids, begins):
    table = Collocations(encoded(CORPUS), 0.5)
    flags = np.array(begins[: len(ids)], np.bool_)
    units = table.units(np.array(ids, np.int64), flags).tolist()
    assert units == sorted(set(units)) and (not ids or units[0] == 0)
    assert all(flags[unit] for unit in units[1:])


def test_words_of_the_same_tokens_are_one_and_others_are_not():
    ids, begins = np.array([1, 2, 1, 2, 2, 1, 12]), np.array([1, 0, 1, 0, 1, 0, 1], np.bool_)
    words, first = words_of(ids, begins)
    assert first.tolist() == [0, 2, 4, 6]
    assert words[0] == words[1] and len(set(words.tolist())) == 3


def test_texts_without_words_have_no_table():
    assert len(Collocations([], 0.5)) == 0
    assert Collocations([], 0.5).units(np.array([3, 4]), np.array([True, True])).tolist() == [0, 1]


class Text:
    """Shards of one document, and that to train on."""

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids
        self.shards, self.train = {"text": self}, {"text": np.array([0])}

    def document(self, number: int) -> np.ndarray:
        return self.ids.astype(np.uint16)


def test_collocations_are_hidden_whole():
    made = Masked(Settings(unit="pmi", rate=0.3, collocations=0.34), VOCABULARY)
    draw = np.random.default_rng(0)
    # Words come in pairs 0 1, 2 3, ...; any pair may follow any other.
    pairs = draw.integers(0, 20, 4000)
    made.study(Text(np.stack([2 * pairs, 2 * pairs + 1], 1).ravel()))
    row = made.example([piece(41)], 41, Draws(0, 1))
    hidden = row.targets[0][row.targets[0] != IGNORED].tolist()
    assert len(hidden) == 12 and {n ^ 1 for n in hidden} == set(hidden)
