"""Noises of T5's comparison, of BART and of UL2: what is left of a text, and what is learned."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from tests.train.lab.objectives.denoised_examples import END, denoising, piece, spans_of, vocabulary
from train.lab.objectives.denoise import NOISES as DENOISERS
from train.lab.objectives.denoise import Denoising, poisson_spans
from train.objective_settings import (
    Bart,
    BertStyle,
    Continuation,
    Deshuffling,
    DroppedTokens,
    MassStyle,
    Mode,
    Noise,
    Spans,
    Ul2,
)
from train.objectives.example import Draws

LENGTHS = st.integers(0, 80)
EPOCHS = st.integers(0, 3)


def corrupted(settings, length: int, epoch: int = 0, ends=()):
    """The ids of source and target of a text 0, 1, 2, ..., without their ends; sentences end with
    the tokens ``ends``."""
    tokens = vocabulary(settings, 400)
    vars(tokens)["ends_sentence"] = np.isin(np.arange(tokens.size), ends)
    made = Denoising(replace(settings, form="causal"), tokens)
    source, target = (part.tokens for part in made.parts(piece(length), Draws(0, epoch)))
    assert source[-1] == target[-1] == END
    return source[:-1].tolist(), target[:-1].tolist()


@given(length=LENGTHS, epoch=EPOCHS, rate=st.floats(0.05, 0.9))
def test_masks_and_random_tokens_replace_the_tokens_to_predict(length, epoch, rate):
    for settings in (BertStyle(rate=rate), MassStyle(rate=rate)):
        source, target = corrupted(settings, length, epoch)
        assert target == list(range(length)) and len(source) == length
        changed = [shown for shown, token in zip(source, target, strict=True) if shown != token]
        hidden = min(max(round(rate * length), 1), length - 1) if length > 1 else 0
        masks = sum(token > END for token in changed)
        assert masks == hidden - round(settings.random * hidden) and len(changed) <= hidden


@given(length=LENGTHS, epoch=EPOCHS, rate=st.floats(0.05, 0.9))
def test_dropped_tokens_and_those_that_stay_are_the_text_both_in_order(length, epoch, rate):
    source, target = corrupted(DroppedTokens(rate=rate), length, epoch)
    assert sorted(source + target) == list(range(length))
    assert source == sorted(source) and target == sorted(target)


@given(length=LENGTHS, epoch=EPOCHS)
def test_a_shuffled_text_has_all_its_tokens_and_a_cut_one_both_parts(length, epoch):
    source, target = corrupted(Deshuffling(), length, epoch)
    assert sorted(source) == target == list(range(length))
    source, target = corrupted(Continuation(), length, epoch)
    assert source + target == list(range(length)) and (target or not length)


@given(
    length=LENGTHS,
    epoch=EPOCHS,
    noises=st.lists(st.sampled_from(get_args(Noise)), min_size=1, max_size=5),
    rate=st.floats(0.05, 0.9),
    span=st.floats(0.5, 8),
)
def test_barts_noises_make_no_text_longer_and_the_target_is_the_text(
    length, epoch, noises, rate, span
):
    settings = Bart(noises=tuple(noises), rate=rate, span=span)
    source, target = corrupted(settings, length, epoch, ends=range(4, 80, 5))
    assert target == list(range(length)) and len(source) <= length
    kept = [token for token in source if token < END]
    assert len(set(kept)) == len(kept) and set(kept) <= set(target)


def test_sentences_are_permuted_whole():
    orders = set()
    for epoch in range(60):
        source, _ = corrupted(Bart(noises=("permutation",)), 17, epoch, ends=(4, 9))
        parts = [tuple(p) for p in ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9), tuple(range(10, 17)))]
        orders.add(next(o for o in itertools.permutations(parts) if sum(o, ()) == tuple(source)))
    assert len(orders) == 6


def test_a_rotated_text_begins_with_any_of_its_tokens():
    first = set()
    for epoch in range(80):
        source, _ = corrupted(Bart(noises=("rotation",)), 9, epoch)
        first.add(source[0])
        assert source == [*range(source[0], 9), *range(source[0])]
    assert first == set(range(9))


def test_deleted_tokens_leave_no_trace_and_masked_ones_a_mask():
    source, _ = corrupted(Bart(noises=("deletion",), rate=0.2), 50)
    assert len(source) == 40 and source == sorted(source)
    source, _ = corrupted(Bart(noises=("masking",), rate=0.2), 50)
    assert sum(token > END for token in source) == 10
    assert all(token in (place, max(source)) for place, token in enumerate(source))


def test_infilling_masks_its_share_in_spans_some_of_length_zero():
    empty = 0
    for epoch in range(40):
        source, _ = corrupted(Bart(noises=("infilling",)), 200, epoch)
        kept = [token for token in source if token < END]
        assert len(kept) == 140 and kept == sorted(kept)
        between = [
            (a, b)
            for a, mask, b in zip(source, source[1:], source[2:], strict=False)
            if mask > END and a < END and b < END
        ]
        empty += sum(b == a + 1 for a, b in between)
    assert empty > 10


@pytest.mark.parametrize("mean", [0.5, 3.0, 9.0])
def test_lengths_are_poissons(mean):
    rng = np.random.default_rng(0)
    lengths = poisson_spans(20_000, mean, lambda count, what: rng.random(count))
    assert lengths.sum() == 20_000
    if mean > 1:  # fewer of none are left where hardly any is longer
        counts = Counter(lengths.tolist())
        for k in range(8):
            expected = math.exp(-mean) * mean**k / math.factorial(k)
            assert counts[k] / len(lengths) == pytest.approx(expected, abs=0.02)


@given(length=st.integers(0, 120), epoch=st.integers(0, 5))
def test_each_denoiser_says_its_mode_and_puts_the_text_back_together(length, epoch):
    settings = Ul2()
    source, target = corrupted(settings, length, epoch)
    special = vocabulary(settings, 400).special
    modes = {special[f"mode {name}"]: name for name in "RSX"}
    mode, spans = modes[source[0]], spans_of(target)
    back = [part for token in source[1:] for part in spans.pop(token, [token])]
    assert back == list(range(length)) and not spans
    if mode == "S" and length > 1:
        assert source[-1] > END and len(target) == 1 + max(1, round(length / 4))


def test_denoisers_are_drawn_by_their_weights():
    modes = (Mode(mode="R", rate=0.15, span=3.0, weight=3.0), Mode(mode="S", rate=0.5, span=None))
    drawn = Counter(corrupted(Ul2(denoisers=modes), 20, epoch)[0][0] for epoch in range(1000))
    assert max(drawn.values()) / 1000 == pytest.approx(0.75, abs=0.04) and len(drawn) == 2


ANY = (Ul2(), Spans(), Spans(unit="token", rate=0.6), DroppedTokens(), BertStyle(), Deshuffling())


@pytest.mark.parametrize("settings", ANY, ids=repr)
def test_sources_and_targets_are_as_long_as_is_said_at_most(settings):
    most = DENOISERS[type(settings)].lengths(settings, np.arange(2, 7))
    found = [
        [[len(part) for part in corrupted(settings, length, epoch)] for length in range(2, 7)]
        for epoch in range(40)
    ]
    assert np.max(found, axis=0).T.tolist() == np.stack(most).tolist()


@pytest.mark.parametrize(("share", "mode"), [(0.0, "R"), (0.749, "R"), (0.75, "S"), (0.999, "S")])
def test_a_share_at_a_denoisers_bound_draws_the_next(share, mode):
    modes = (Mode(mode="R", rate=0.15, span=3.0, weight=3.0), Mode(mode="S", rate=0.5, span=None))
    made = denoising(Ul2(denoisers=modes))
    source, _ = made.noise.corrupt(np.arange(20), lambda count, what: np.full(count, share))
    assert source[0] == made.noise.tokens.special[f"mode {mode}"]


@pytest.mark.parametrize(
    ("share", "lengths"),
    [(0.0, [0, 0, 0, 4]), (math.exp(-1) - 1e-9, [0, 0, 0, 4]), (math.exp(-1), [1, 1, 1, 1]),
     (2 * math.exp(-1) + 1e-9, [2, 2]), (0.9999, [4])],
)  # fmt: skip
def test_a_length_begins_where_the_chance_of_shorter_ones_ends(share, lengths):
    """Poisson with mean 1: a share below 1/e is 0, below 2/e is 1; the last span is cut off, and of
    empty ones there are no more than the others save."""
    assert poisson_spans(4, 1.0, lambda count, what: np.full(count, share)).tolist() == lengths


def test_unknown_noises_and_missing_denoisers_are_one_line_errors():
    with pytest.raises(LlmcurateError, match="'masks': choose one of permutation"):
        Bart(noises=("masks",))
    with pytest.raises(LlmcurateError, match=r"denoisers is .*: give 1 or more"):
        Ul2(denoisers=())


def test_special_tokens_are_as_many_as_the_longest_piece_needs():
    needs = Denoising.needs(Ul2(form="prefix"), 128)
    assert needs[:3] == ("mode R", "mode S", "mode X") and needs[-1] == "end"
    made = denoising(Ul2(form="prefix"), 128)
    assert made.example([piece(40)], 128, Draws(0, 0)).tokens > 0
