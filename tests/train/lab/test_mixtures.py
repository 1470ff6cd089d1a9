"""Mixtures: what is drawn, and what regressions find on a surface whose optimum is known."""

from __future__ import annotations

import numpy as np
import pytest

from llmcurate.base.errors import LlmcurateError
from train.lab.mixtures import (
    WHOLE,
    Linear,
    Trees,
    candidates,
    draw_mixtures,
    held_out,
    optimum,
)

PRIOR = np.array([0.1, 0.2, 0.1, 0.6])
MADE_OF = np.array([0.5, 0.3, 0.15, 0.05])  # of the documents, by source
NOISE = 0.01  # bits a byte, of a run
FREE = np.ones(4)


def surface(mixtures: np.ndarray) -> np.ndarray:
    """Return the bits of 40 documents: 1 + 3 e^(-4 share), by the share of the document's
    source.
    """
    source = np.repeat(np.arange(4), (40 * MADE_OF).astype(int))
    return 1 + 3 * np.exp(-4 * mixtures[:, source])


def best_mixture() -> np.ndarray:
    """Of that surface: where the gains of all sources are alike (Lagrange)."""
    low, high = -20.0, 20.0
    for _ in range(100):
        level = (low + high) / 2
        shares = np.maximum(0, (np.log(12 * MADE_OF) - level) / 4)
        low, high = (level, high) if shares.sum() > 1 else (low, level)
    return shares


def trials(seed: int, runs: int = 24, noise: float = NOISE) -> tuple[np.ndarray, np.ndarray]:
    """(shares, bits) of runs, whose noise all documents share."""
    shares = draw_mixtures(PRIOR, runs, seed) / WHOLE
    draw = np.random.default_rng(seed)
    return shares, surface(shares) + draw.normal(0, noise, (runs, 1))


WEIGHTS = np.full(40, 1 / 40)


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_optimum_is_found_within_a_tenth(seed):
    shares, bits = trials(seed)
    simulated = candidates(PRIOR, FREE, seed)
    best = optimum(Linear(), shares, bits, WEIGHTS, simulated, PRIOR[None], seed)
    assert np.abs(best.shares - best_mixture()).sum() / 2 < 0.1
    assert np.abs(PRIOR - best_mixture()).sum() / 2 > 0.5
    assert best.predicted[0] < best.predicted[1] - 0.2
    assert best.predicted[0] == pytest.approx((surface(best.shares[None]) @ WEIGHTS)[0], abs=0.1)
    low, high = np.quantile(best.drawn, [0.025, 0.975], axis=0)
    assert (low <= best.shares).all() and (best.shares <= high).all()


@pytest.mark.parametrize("noise", [0.03, 0.1])
def test_held_out_error_is_the_noise(noise):
    errors = [held_out(Linear(), *trials(seed, 64, noise), WEIGHTS, 0) for seed in range(4)]
    mean = np.mean([error.rmse for error in errors])
    assert 0.8 * noise < mean < 1.5 * noise + 0.03
    assert all(error.predicts and error.correlation > 0.8 for error in errors)


def test_trees_predict_too_and_the_law_predicts_better_where_it_holds():
    pytest.importorskip("sklearn")
    shares, bits = trials(0, 48)
    linear, trees = (held_out(r, shares, bits, WEIGHTS, 0) for r in (Linear(), Trees()))
    assert linear.rmse < trees.rmse and trees.predicts
    again = held_out(Trees(), shares, bits, WEIGHTS, 0)
    assert np.array_equal(again.predictions, trees.predictions)


def test_noise_alone_is_predicted_by_chance_only():
    shares, bits = trials(0, 32)
    draw = np.random.default_rng(3)
    errors = [
        held_out(Linear(), shares, draw.normal(2, 0.1, bits.shape), WEIGHTS, 0) for _ in range(6)
    ]
    assert sum(error.predicts for error in errors) <= 1


def test_the_first_mixtures_are_the_same_however_many_are_drawn():
    few, many = draw_mixtures(PRIOR, 8, 5), draw_mixtures(PRIOR, 40, 5)
    assert np.array_equal(few, many[:8])
    assert np.array_equal(few[0], (PRIOR * WHOLE).astype(int))
    assert len({tuple(row) for row in many}) == 40
    assert not np.array_equal(few, draw_mixtures(PRIOR, 8, 6))


def test_mixtures_reach_from_one_source_to_all():
    shares = draw_mixtures(PRIOR, 64, 0) / WHOLE
    largest = shares.max(axis=1)
    assert (largest > 0.99).any() and (largest < 0.6).any()


def random_prior(seed: int) -> np.ndarray:
    """Shares of two to six sources."""
    sizes = np.random.default_rng(seed).uniform(0.01, 1, 2 + seed % 5)
    return sizes / sizes.sum()


@pytest.mark.parametrize("seed", range(10))
def test_shares_are_whole_numbers_that_add_up(seed):
    prior = random_prior(seed)
    mixtures = draw_mixtures(prior, 3, seed)
    assert (mixtures >= 0).all() and (mixtures.sum(axis=1) == WHOLE).all()


@pytest.mark.parametrize("seed", range(10))
def test_epoch_caps_hold_in_all_simulated_mixtures(seed):
    prior, total = random_prior(seed), 0.5 + 3.5 * seed / 9
    bounds = np.minimum(1, 4 * prior / total)  # four epochs of a run of `total` times all there is
    simulated = candidates(prior, bounds, seed, 200)
    assert (simulated <= bounds + 1e-9).all()
    assert simulated.sum(axis=1) == pytest.approx(np.ones(200))


def test_the_optimum_lies_on_a_cap_that_counts():
    shares, bits = trials(0)
    bounds = np.array([0.25, 1, 1, 1])
    simulated = candidates(PRIOR, bounds, 0)
    best = optimum(Linear(), shares, bits, WEIGHTS, simulated, PRIOR[None], 0)
    assert best.shares[0] == pytest.approx(0.25, abs=0.01)


def test_draws_within_bounds_or_an_error():
    bounds = np.array([0.3, 0.4, 0.3, 0.8])
    assert (draw_mixtures(PRIOR, 8, 0, bounds) / WHOLE <= bounds + 1e-4).all()
    with pytest.raises(LlmcurateError, match="within the epochs"):
        draw_mixtures(PRIOR, 8, 0, PRIOR)
