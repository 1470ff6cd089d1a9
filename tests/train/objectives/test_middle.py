"""Fill-in-the-middle: no token is lost, and the given parts are not scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.lab.objectives.denoised_examples import END, piece
from tests.train.lab.objectives.masked_examples import Shares
from train.data.vocabulary import Vocabulary
from train.objective_settings import FillInTheMiddle as Settings
from train.objectives.causal import FillInTheMiddle
from train.objectives.example import IGNORED, Draws

PRE, SUF, MID = 1001, 1002, 1003
ROLES = FillInTheMiddle.needs(Settings(), 64)
VOCABULARY = Vocabulary(size=1004, special=dict(zip(ROLES, (PRE, SUF, MID, END), strict=True)))


def filled(**changes) -> FillInTheMiddle:
    return FillInTheMiddle(Settings(**changes), VOCABULARY)


def put_back(tokens: list[int]) -> list[int]:
    """The text of a row that begins with a prefix's mark and ends with an end of text."""
    assert tokens[0] == PRE and tokens[-1] == END
    suffix, middle = tokens.index(SUF), tokens.index(MID)
    if suffix == 1:  # the prefix stands before the middle; where they meet does not matter
        return tokens[middle + 1 : -1] + tokens[suffix + 1 : middle]
    return tokens[1:suffix] + tokens[middle + 1 : -1] + tokens[suffix + 1 : middle]


@given(
    length=st.integers(0, 60),
    epoch=st.integers(0, 9),
    spm=st.sampled_from([0.0, 0.5, 1.0]),
    ended=st.booleans(),
)
def test_the_parts_put_the_text_back_together(length, epoch, spm, ended):
    if not (length or ended):
        return
    text = piece(length, ended=ended)
    moved = filled(rate=1.0, spm=spm).with_middle_last(text, Draws(0, epoch))
    assert put_back(moved.tokens.tolist()) == list(range(length))
    assert (moved.tokens[~moved.counted] > END).all() and (moved.tokens > END).sum() == 3
    taken = FillInTheMiddle.takes(Settings())(np.array([len(text.tokens)]), 100)
    assert len(moved.tokens) <= taken[0]


@pytest.mark.parametrize(
    ("shares", "tokens"),
    [
        ([0.5, 0.0, 0.0, 0.0], [0, 1, 2, 3]),  # at the rate no more
        ([0.499, 0.5, 0.2, 0.4], [PRE, 0, SUF, 2, 3, MID, 1]),  # at spm no more
        ([0.0, 0.499, 0.2, 0.4], [PRE, SUF, 2, 3, MID, 0, 1]),
        ([0.0, 0.5, 0.999, 0.0], [PRE, SUF, MID, 0, 1, 2, 3]),  # from 0 to the end
        ([0.0, 0.5, 0.4, 0.4], [PRE, 0, 1, SUF, 2, 3, MID]),  # of equal cuts an empty middle
    ],
)
def test_a_text_of_four_tokens_is_cut_at_two_of_five_places(shares, tokens):
    moved = filled(rate=0.5, spm=0.5).with_middle_last(piece(4), Shares(shares))
    assert moved.tokens.tolist() == [*tokens, END]


def test_the_share_that_is_moved_and_the_order_of_its_parts_are_those_asked_for():
    orders = []
    for epoch in range(2000):
        tokens = (
            filled(rate=0.6, spm=0.25).with_middle_last(piece(30), Draws(0, epoch)).tokens.tolist()
        )
        orders.append(0 if tokens[0] != PRE else 2 if tokens[1] == SUF and 0 in tokens[4:] else 1)
    shares = np.bincount(orders, minlength=3) / len(orders)
    assert shares.tolist() == pytest.approx([0.4, 0.45, 0.15], abs=0.04)


def test_cuts_are_as_likely_anywhere():
    counts = np.zeros(5)
    for epoch in range(3000):
        tokens = (
            filled(rate=1.0, spm=0.0).with_middle_last(piece(4), Draws(0, epoch)).tokens.tolist()
        )
        counts[len(tokens) - 2 - tokens.index(MID)] += 1
    # Of two numbers drawn evenly of 5 the difference is k in (5, 8, 6, 4, 2) of 25 cases.
    assert (counts / 3000).tolist() == pytest.approx([0.2, 0.32, 0.24, 0.16, 0.08], abs=0.03)


def test_a_row_is_causal_and_all_of_the_text_is_scored():
    row = filled(rate=1.0).example([piece(20)], 40, Draws(0, 0))
    scored = row.targets[0][row.targets[0] != IGNORED].tolist()
    assert sorted(scored) == [*range(20), END] and row.prefix is None
    assert row.inputs[0, :2].tolist() == [END, PRE]


def test_tokens_that_do_not_count_are_not_scored_wherever_they_stand():
    text = replace(piece(40), counted=np.arange(41) % 2 == 0)
    row = filled(rate=1.0).example([text], 64, Draws(0, 0))
    scored = row.targets[0][row.targets[0] != IGNORED].numpy()
    assert sorted(scored[scored < END].tolist()) == list(range(0, 40, 2))
