"""Copies at a chosen similarity."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.lab.evaluate.planting import near_copy, nearest
from tests.curate.similarity import jaccard

WORDS = [f"{a}{b}" for a in ("mel", "tor", "sun", "wek", "pol") for b in ("ka", "ri", "dom", "est")]


def prose(words: int, seed: int = 1) -> str:
    draw = random.Random(seed)
    vocabulary = [
        "".join(draw.choices("abcdefghiklmnoprstu", k=draw.randint(2, 9))) for _ in range(words)
    ]
    return ". ".join(" ".join(vocabulary[i : i + 9]).capitalize() for i in range(0, words, 9)) + "."


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=40).map(lambda v: sorted(v, reverse=True)),
    st.integers(0, 30),
)
def test_the_nearest_state_is_found_in_few_looks(values: list[int], target: int) -> None:
    looks: list[int] = []

    def similarity(state: int) -> float:
        looks.append(state)
        return values[state]

    state, reached = nearest(len(values), similarity, target)
    assert reached == values[state]
    assert abs(reached - target) == min(abs(v - target) for v in values)
    assert values.index(reached) == state  # the one with the fewest edits
    assert len(looks) <= 16
    upper, reached = nearest(len(values), lambda s: values[s], target, above=True)
    assert reached >= target or upper == 0


@pytest.mark.parametrize("target", [0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("words", [200, 900])
def test_a_copy_has_the_similarity_it_was_made_for(target: float, words: int) -> None:
    text = prose(words)
    copy = near_copy(text, target, WORDS, "key", jaccard)
    assert copy.similarity == jaccard(text, copy.text)
    assert abs(copy.similarity - target) <= 0.01
    assert near_copy(text, target, WORDS, "key", jaccard) == copy
    assert near_copy(text, target, WORDS, "other key", jaccard).text != copy.text
    # Words are exchanged where they stand: what is between them stays.
    assert [c for c in copy.text if c in ". "] == [c for c in text if c in ". "]


def test_the_plain_similarity_and_that_of_minhash_agree() -> None:
    from curate.lab.evaluate.dedups import _similarity

    text = prose(300)
    measured = _similarity()
    for target in (0.5, 0.8, 1.0):
        copy = near_copy(text, target, WORDS, "key", jaccard).text
        assert measured(text, copy) == pytest.approx(jaccard(text, copy), abs=1e-12)
