"""Hidden tokens: their number, their choice, and what is shown instead."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.lab.objectives.masked_examples import VOCABULARY, Shares, piece, put_back
from train.data.rows import Piece, Rows
from train.lab.objectives.masked import Masked, Pairs, _lengths
from train.objective_settings import Masked as Settings
from train.objective_settings import NextSentence, SentenceOrder
from train.objectives.example import IGNORED, Draws

PLAIN = Settings()


def masked(**changes) -> Masked:
    return Masked(dataclasses.replace(PLAIN, **changes), VOCABULARY)


class Numbered:
    """Rows of one piece each, of documents of their own."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.all, self.count = pieces, len(pieces)

    def width(self, row: int) -> int:
        return len(self.all[row].tokens) + 1

    def pieces(self, row: int) -> list[Piece]:
        return [self.all[row]]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    rate=st.floats(0.05, 0.6),
    unit=st.sampled_from(["token", "word", "span"]),
    epoch=st.integers(0, 5),
)
def test_targets_put_the_text_back_together(lengths, rate, unit, epoch):
    pieces = [
        piece(length, document=number, first=7 * (number % 2), start=31 * number)
        for number, length in enumerate(lengths)
    ]
    row = masked(rate=rate, unit=unit).example(pieces, sum(lengths) + 3, Draws(1, epoch))
    whole = [token for p in pieces for token in (p.before, *p.tokens[:-1].tolist())]
    assert put_back(row)[0, : sum(lengths)].tolist() == whole
    for number, p in enumerate(pieces):
        inside = row.documents[0] == number
        candidates = len(p.tokens) - (p.first == 0)
        wanted = max(1, round(rate * candidates)) if candidates else 0
        assert int((row.targets[0, inside] != IGNORED).sum()) == wanted
    assert (row.targets[0, sum(lengths) :] == IGNORED).all()


def test_of_ten_hidden_tokens_eight_are_masked_one_random_and_one_unchanged():
    row = masked(rate=0.5).example([piece(40_000)], 40_000, Draws(0, 0))
    hidden = row.targets[0] != IGNORED
    shown, told = row.inputs[0, hidden], row.targets[0, hidden]
    shares = [float((shown == 1001).float().mean()), float((shown == told).float().mean())]
    assert shares == pytest.approx([0.8, 0.1 + 0.1 / 1000], abs=0.01)
    assert int(shown[shown != 1001].max()) < 1000  # no special token is drawn


def test_from_eight_tenths_on_a_hidden_token_is_random_and_from_nine_on_it_is_shown():
    kinds, others = [0.0, 0.799, 0.8, 0.899, 0.9, 0.999], [0.0, 0.0, 0.5, 0.999, 0.5, 0.5]
    draws = Shares([0.5] * 6, [], kinds, others)
    shown, told = masked(rate=0.999).hide(piece(6, first=7), np.arange(6), draws)
    assert shown.tolist() == [1001, 1001, 500, 999, 4, 5] and told.tolist() == [*range(6)]


@pytest.mark.parametrize(
    ("shares", "hidden"), [([0.5] * 6, [0, 1]), ([0.9, 0.5, 0.1, 0.5, 0.1, 0.9], [2, 4])]
)
def test_the_least_shares_are_hidden_and_of_equal_ones_the_first(shares, hidden):
    draws = Shares(shares, [], [0.0] * 6, [0.0] * 6)
    _, told = masked(rate=0.34).hide(piece(6, first=7), np.arange(6), draws)
    assert np.flatnonzero(told != IGNORED).tolist() == hidden


def test_spans_have_spanberts_lengths():
    """A geometric distribution with p = 0.2 up to 10 words: 22.4 % of one, 40.3 % of two or one."""
    shares = np.array([0.0, 0.2238, 0.2245, 0.4028, 0.4038, 0.999999, 1.0])
    assert _lengths(shares, 3.797).tolist() == [1, 1, 2, 2, 3, 10, 10]


def test_each_token_of_a_split_document_can_be_hidden_in_one_piece_alone():
    tokens = np.arange(20, dtype=np.int64)
    parts = [
        Piece(document=0, first=0, before=1000, tokens=tokens[:12]),
        Piece(document=0, first=12, before=11, tokens=tokens[12:]),
    ]
    row = masked(rate=0.99).example(parts, 20, Draws(0, 0))
    told = row.targets[row.targets != IGNORED].tolist()
    assert sorted(told) == list(range(19))  # the last one ends the text


def test_epochs_hide_others_unless_they_are_fixed():
    text = [piece(60)]
    first, second = (masked().example(text, 60, Draws(0, epoch)).targets for epoch in (0, 1))
    assert not torch.equal(first, second)
    fixed = [masked(fixed=True).example(text, 60, Draws(0, e)).targets for e in (0, 1)]
    assert torch.equal(*fixed)
    other = masked(fixed=True).example(text, 60, Draws(1, 0)).targets
    assert not torch.equal(other, fixed[0])  # of another seed


def test_words_are_hidden_whole():
    begins = np.zeros(1003, dtype=np.bool_)
    begins[::4] = True  # words of four tokens
    tokens = dataclasses.replace(VOCABULARY)
    vars(tokens)["begins_word"] = begins
    made = Masked(dataclasses.replace(PLAIN, unit="word", rate=0.25), tokens)
    row = made.example([piece(401)], 401, Draws(0, 3))
    told = row.targets[row.targets != IGNORED].reshape(-1, 4)
    assert (told % 4 == torch.arange(4)).all() and len(told) == 25


def test_spans_have_the_mean_length_that_was_asked_for():
    """Of a share so small that they seldom meet."""
    lengths = []
    for epoch in range(200):
        row = masked(rate=0.03, unit="span").example([piece(1000)], 1000, Draws(0, epoch))
        hidden = (row.targets[0] != IGNORED).int().tolist()
        runs = "".join(map(str, hidden)).split("0")
        lengths += [len(run) for run in runs if run]
    assert 3.2 < np.mean(lengths) < 3.9 and max(lengths) > 7  # the last span of a piece is cut off


def test_tokens_that_do_not_count_are_not_hidden():
    counted = np.arange(50) % 2 == 0
    text = dataclasses.replace(piece(50), counted=counted)
    row = masked(rate=0.9).example([text], 50, Draws(0, 0))
    told = row.targets[row.targets != IGNORED]
    assert len(told) and (told % 2 == 0).all()


def test_the_token_before_a_piece_is_not_hidden_where_it_says_which_tokens_count():
    text = dataclasses.replace(piece(6, first=7), counted=np.ones(6, np.bool_))
    draws = Shares([0.5] * 6, [], [0.0] * 6, [0.0] * 6)
    shown, told = masked(rate=0.999).hide(text, np.arange(6), draws)
    assert shown.tolist() == [0, *[1001] * 5] and told.tolist() == [IGNORED, *range(1, 6)]


def test_a_word_that_a_piece_begins_within_is_a_unit():
    tokens = dataclasses.replace(VOCABULARY)
    vars(tokens)["begins_word"] = np.arange(1003) % 3 == 0
    made = Masked(dataclasses.replace(PLAIN, unit="word"), tokens)
    units = made.units(piece(6), np.arange(2, 8), Shares([0.1, 0.2, 0.3]))
    assert units.tolist() == [[0, 1], [1, 4], [4, 6]]


@pytest.mark.parametrize("kind", [NextSentence, SentenceOrder])
def test_half_of_the_pairs_do_not_belong_together(kind):
    texts = [piece(31, document=number, start=40 * number) for number in range(24)]
    rows = Numbered(texts)
    pairs, following = Pairs(kind(rate=0.1), VOCABULARY), kind is NextSentence
    wrong = 0
    for text in texts:
        row = pairs.example([text], 32, Draws(3, 0, rows))
        there = row.documents[0] >= 0
        read = put_back(row)[0, there]
        middle = read.tolist().index(1002)
        first, second = read[1:middle].tolist(), read[middle + 1 :].tolist()
        own = text.tokens[:-1].tolist()
        assert row.segments[0, there].tolist() == [0] * (middle + 1) + [1] * len(second)
        assert (row.pairs[0, 1:] == IGNORED).all() and read[0] == 1000
        if row.pairs[0, 0] == 0:
            assert first + second == own
            continue
        wrong += 1
        if following:
            assert first == own[: len(first)] and not set(second) & set(own)
        else:
            assert second + first == own
    assert 6 <= wrong <= 18


@pytest.mark.parametrize(("share", "first"), [(0.0, 2), (0.24, 2), (0.26, 3), (0.5, 4), (0.999, 5)])
def test_a_piece_is_cut_between_its_quarters(share, first):
    pairs = Pairs(SentenceOrder(rate=0.1), VOCABULARY)
    draws = Shares([0.5] * 9, [], [0.0] * 9, [0.0] * 9, [], [share])
    begin, one, two = pairs._halves(piece(9, first=7), draws)
    assert (begin.shape[1], one.shape[1], two.shape[1]) == (1, first, 8 - first)


@pytest.mark.parametrize(
    ("ends", "share", "first"),
    [
        ([2], 0.0, 3),  # after token 2, the third of the eight
        ([1, 5], 0.0, 2),  # the nearest to the drawn place
        ([1, 5], 0.999, 6),
        ([0, 1, 2], 0.5, 3),  # three marks in a row are one end
        ([7], 0.5, 4),  # the end of the piece is no cut
        ([1000], 0.5, 4),  # nor is the token before it
    ],
)
def test_a_pair_is_cut_at_the_end_of_a_sentence_where_there_is_one(ends, share, first):
    tokens = dataclasses.replace(VOCABULARY)
    vars(tokens)["ends_sentence"] = np.isin(np.arange(tokens.size), ends)
    pairs = Pairs(SentenceOrder(rate=0.1), tokens)
    draws = Shares([0.5] * 9, [], [0.0] * 9, [0.0] * 9, [], [share])
    _, one, two = pairs._halves(piece(9, first=7), draws)
    assert (one.shape[1], two.shape[1]) == (first, 8 - first)


@pytest.mark.parametrize(("share", "wrong"), [(0.0, 1), (0.4999, 1), (0.5, 0), (0.9, 0)])
def test_a_draw_below_one_half_swaps_the_sentence_order(share, wrong):
    pairs = Pairs(SentenceOrder(rate=0.1), VOCABULARY)
    draws = Shares([0.5] * 9, [], [0.0] * 9, [0.0] * 9, [share], [0.5])
    assert pairs.example([piece(9, first=7)], 10, draws).pairs[0, 0] == wrong


def test_packing_leaves_room_for_the_separators_of_pairs(shard_folder):
    from train.data.shards import read_shards

    shards = read_shards(shard_folder)
    numbers = np.arange(shards.documents)
    rows = Rows(shards, numbers, 16, packing="best-fit", takes=Pairs.takes(NextSentence()))
    seen = np.zeros(int(shards.length.sum()), dtype=int)
    starts = np.cumsum(shards.length) - shards.length
    for row in range(rows.count):
        spans = rows.spans(row)
        assert sum(taken + 1 for _, _, taken in spans) <= 16
        for document, first, taken in spans:
            seen[starts[document] + first : starts[document] + first + taken] += 1
    assert (seen == 1).all()
