"""Damaged texts: what is hidden, that nothing is lost, and that rows have room for it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tests.train.lab.objectives.denoised_examples import END, denoising, piece, spans_of
from train.data.rows import longest
from train.lab.objectives.denoise import (
    NOISES,
    Denoising,
    choose,
    hidden_of,
    random_spans,
    replaced,
    segments,
    width,
)
from train.lab.objectives.denoise import spans_of as spans_in
from train.objective_settings import Spans
from train.objectives.example import IGNORED, Draws

FORMS = st.sampled_from(["prefix", "causal"])
SPANS = st.builds(
    Spans,
    rate=st.floats(0.05, 0.9),
    span=st.floats(1, 12),
    unit=st.sampled_from(["span", "token"]),
    form=FORMS,
)


def corrupted(settings, length: int, epoch: int = 0):
    """The ids of source and target of a text 0, 1, 2, ..., without their ends."""
    made = denoising(settings, max(200, 3 * length))
    source, target = (part.tokens for part in made.parts(piece(length), Draws(0, epoch)))
    assert source[-1] == target[-1] == END
    return source[:-1].tolist(), target[:-1].tolist()


@given(settings=SPANS, length=st.integers(0, 120), epoch=st.integers(0, 3))
def test_spans_after_their_sentinels_restore_the_text(settings, length, epoch):
    source, target = corrupted(settings, length, epoch)
    spans = spans_of(target)
    back = [part for token in source for part in spans.pop(token, [token])]
    assert back == list(range(length)) and not spans
    hidden = sum(token < END for token in target)
    assert hidden == int(hidden_of(settings.rate, np.array([length]))[0])
    assert [token for token in source if token > END] == sorted(t for t in target if t > END)


@given(settings=SPANS, length=st.integers(2, 120), epoch=st.integers(0, 3))
def test_spans_are_as_many_as_t5_has(settings, length, epoch):
    settings = replace(settings, unit="span")
    noise = min(max(round(length * settings.rate), 1), length - 1)
    count = min(max(round(noise / settings.span), 1), length - noise)
    source, target = corrupted(settings, length, epoch)
    spans = spans_of(target)
    assert len(spans) == count and all(spans.values()) and source[0] < END


def test_t5s_lengths_are_those_that_its_paper_prints():
    """Inputs of 512 tokens have 114 targets (the code's 568 tokens)."""
    settings = Spans(form="encoder-decoder")
    assert width(settings, 512) == 114
    assert longest(lambda n, _: NOISES[Spans].lengths(settings, n)[0] + 1, 512) == 568


@pytest.mark.parametrize("length", [2, 3, 5, 20, 60])
def test_targets_fit_their_row_where_sources_fit_theirs(length):
    settings = Spans(form="encoder-decoder")
    texts = 512 // int(Denoising.takes(settings)(np.array([length]), 512)[0])
    target = int(NOISES[Spans].lengths(settings, np.array([length]))[1][0]) + 1
    assert texts > 1 and texts * target <= 114


def test_hidden_and_shown_runs_are_drawn_apart():
    draws = [partial(Draws(0, epoch).shares, piece(6)) for epoch in range(60)]
    masks = {tuple(random_spans(6, 3, 2, draw).tolist()) for draw in draws}
    assert len(masks) == 4  # 1 + 2 or 2 + 1 tokens of either kind


def test_rows_that_are_too_short_for_a_token_are_a_one_line_error():
    with pytest.raises(LlmcurateError, match="context is 2: too short for the objective"):
        longest(Denoising.takes(Spans(form="prefix")), 2)


def test_each_token_is_hidden_as_often_as_another():
    counts = np.zeros(40)
    for epoch in range(2000):
        hidden = [t for t in corrupted(Spans(rate=0.3, unit="token"), 40, epoch)[1] if t < END]
        counts[hidden] += 1
    assert counts.sum() == 2000 * 12 and abs(counts / 2000 - 0.3).max() < 0.05


@given(
    settings=SPANS,
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    context=st.integers(90, 200),
)
def test_rows_have_room_for_what_pieces_take(settings, lengths, context):
    made = denoising(settings, context)
    takes = Denoising.takes(settings)
    pieces, filled = [], 0
    for number, length in enumerate(lengths):
        one = piece(length, document=number)
        taken = int(takes(np.array([len(one.tokens)]), context)[0])
        if filled + taken <= context:
            pieces.append(one)
            filled += taken
    row = made.example(pieces, context, Draws(0, 0))
    assert row.targets.shape == (1, context)
    many = takes(np.arange(3 * context), context)
    assert (np.diff(many) >= 0).all()


def test_a_prefix_is_the_source_and_only_the_target_is_scored():
    settings = Spans(form="prefix", rate=0.3)
    made = denoising(settings)
    source, target = (part.tokens for part in made.parts(piece(20), Draws(0, 0)))
    row = made.example([piece(20)], 60, Draws(0, 0))
    read = len(source) + 1
    assert row.inputs[0, :read].tolist() == [END, *source]
    assert row.prefix[0].tolist() == [True] * read + [False] * (60 - read)
    scored = row.targets[0][row.targets[0] != IGNORED].tolist()
    assert scored == target.tolist() and row.targets[0, read - 1] == target[0]


def test_a_causal_row_is_learned_whole():
    made = denoising(Spans(form="causal", rate=0.3))
    source, target = (part.tokens for part in made.parts(piece(20), Draws(0, 0)))
    row = made.example([piece(20)], 60, Draws(0, 0))
    assert row.prefix is None
    both = [*source.tolist(), *target.tolist()]
    assert row.targets[0, : len(both)].tolist() == both


def test_tokens_that_do_not_count_are_hidden_and_not_scored():
    one = piece(40)
    one = replace(one, counted=np.arange(41) % 2 == 0)
    row = denoising(Spans(form="prefix", rate=0.5)).example([one], 90, Draws(0, 0))
    scored = row.targets[0][row.targets[0] != IGNORED].numpy()
    assert (scored[scored < END] % 2 == 0).all() and (scored < END).sum() >= 5
    assert scored[-1] == END  # the final end of text always counts


def test_what_is_hidden_follows_from_seed_epoch_and_piece_whatever_the_row():
    made = denoising(Spans(form="causal", rate=0.4))
    several = [piece(30, document=number) for number in range(3)]
    together = made.example(several, 150, Draws(4, 2))
    alone = made.example(several[1:2], 60, Draws(4, 2))
    place = together.documents[0] == 1
    assert together.targets[0, place].tolist() == alone.targets[alone.documents == 1].tolist()
    other = made.example(several[1:2], 60, Draws(4, 3))
    assert alone.targets.tolist() != other.targets.tolist()


def test_a_mask_becomes_sentinels_as_in_the_paper():
    """Figure 2: Thank you [for inviting] me to your party [last] week."""
    hidden = np.isin(np.arange(10), [2, 3, 8])
    source, target = replaced(hidden, np.array([50, 51]))
    assert source.tolist() == [~0, ~1, 50, ~4, ~5, ~6, ~7, 51, ~9]
    assert target.tolist() == [50, ~2, ~3, 51, ~8]


@pytest.mark.parametrize(
    ("rate", "hidden"),
    [
        (0.15, {0: 0, 1: 0, 2: 1, 3: 1, 10: 2, 30: 4, 50: 8}),
        (0.5, {1: 0, 2: 1, 3: 2, 5: 2, 7: 4}),
        (0.9, {1: 0, 2: 1, 3: 2, 4: 3, 20: 18}),
    ],
)
def test_halves_are_rounded_to_even_and_a_token_at_least_is_hidden_and_shown(rate, hidden):
    """As tf.round of random_spans_noise_mask does: 1.5, 2.5 and 4.5 are 2, 2 and 4."""
    assert hidden_of(rate, np.array([*hidden])).tolist() == [*hidden.values()]


@pytest.mark.parametrize(
    ("mean", "hidden", "length", "spans"),
    [(3, 1, 9, 1), (3, 4, 9, 1), (2, 3, 9, 2), (2, 5, 20, 2), (2, 7, 20, 4), (1, 5, 7, 2),
     (1, 3, 6, 3), (None, 5, 9, 1), (3, 0, 1, 0)],
)  # fmt: skip
def test_spans_are_the_hidden_tokens_by_their_mean_and_each_has_a_token_before_it(
    mean, hidden, length, spans
):
    assert spans_in(mean, np.array([hidden]), np.array([length])).tolist() == [spans]


def test_a_choice_is_of_the_least_shares_of_equal_ones_the_first():
    assert choose(5, 5, np.zeros(5)).all() and not choose(5, 0, np.zeros(5)).any()
    assert np.flatnonzero(choose(5, 2, np.zeros(5))).tolist() == [0, 1]
    assert np.flatnonzero(choose(5, 2, np.array([0.9, 0.5, 0.1, 0.5, 0.9]))).tolist() == [1, 2]
    assert segments(6, 3, np.zeros(5)).tolist() == [1, 1, 4]


@pytest.mark.parametrize("length", [0, 1])
def test_a_text_of_a_token_or_none_is_left_as_it_is(length):
    assert corrupted(Spans(), length) == (list(range(length)), [])
