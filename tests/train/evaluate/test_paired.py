"""Differences over seeds and documents: their intervals hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parameters import few, mostly_slow
from train.evaluate.paired import interval_of_mean, paired_difference, resampled

TRUTH = 0.01  # bits per byte
# Deviations by seed, by document, and of a document by seed.
CASES = {
    "seeds": (0.01, 0.01, 0.01),
    "both": (0.004, 0.03, 0.02),
    "documents": (0.0005, 0.05, 0.01),
    "neither alone": (0.0003, 0.003, 0.05),
}


def experiment(draw, deviations, seeds=3, documents=100):
    """The difference that an experiment finds where documents and seeds vary so."""
    by_seed, by_document, by_both = deviations
    sizes = draw.lognormal(7, 0.6, documents).astype(np.int64) + 1
    bits = (
        TRUTH
        + draw.normal(0, by_seed, (seeds, 1))
        + draw.normal(0, by_document, documents)
        + draw.normal(0, by_both, (seeds, documents))
    )
    nats = bits * sizes * math.log(2)
    strata = np.arange(documents) % 2
    base = np.zeros_like(nats)
    return paired_difference(base, nats, sizes, strata, seed=int(draw.integers(1 << 30)))


@pytest.mark.parametrize("case", few(CASES, "both"))
def test_intervals_of_95_percent_hold_the_truth_in_94_to_98_of_100(case, monkeypatch):
    monkeypatch.setattr("train.evaluate.paired.RESAMPLES", 100)
    draw = np.random.default_rng(1)
    intervals = [experiment(draw, CASES[case]).interval for _ in range(1000)]
    held = np.mean([low <= TRUTH <= high for low, high in intervals])
    assert 0.93 <= held <= 0.985  # of 1,000 experiments: within 1 of these


def test_percentiles_of_resampled_seeds_would_hold_it_too_seldom():
    """Why seeds are not resampled: three of them drawn anew lie too close."""
    draw = np.random.default_rng(2)
    held = []
    for _ in range(400):
        by_seed = TRUTH + draw.normal(0, 0.01, 3)
        means = by_seed[draw.integers(3, size=(400, 3))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        held.append(low <= TRUTH <= high)
    assert np.mean(held) < 0.85


@pytest.mark.parametrize("case", mostly_slow(["documents", "seeds"]))
def test_a_detectable_difference_is_detected_in_80_of_100_trials(case, monkeypatch):
    monkeypatch.setattr("train.evaluate.paired.RESAMPLES", 100)
    draw = np.random.default_rng(3)
    sample = [experiment(draw, CASES[case]).detectable() for _ in range(300)]
    least = math.sqrt(np.mean(np.square(sample)))  # variances are without bias, their roots are not
    shifted = [experiment(draw, CASES[case]) for _ in range(600)]
    offset = least - TRUTH
    seen = np.mean([d.interval[0] + offset > 0 or d.interval[1] + offset < 0 for d in shifted])
    assert 0.74 <= seen <= 0.86


def test_the_difference_is_of_sums_and_by_seed():
    base = np.array([[10.0, 20.0], [11.0, 19.0]])
    other = np.array([[12.0, 21.0], [13.0, 22.0]])
    sizes = np.array([4, 6])
    difference = paired_difference(base, other, sizes, [0, 0], seed=0)
    expected = [3 / math.log(2) / 10, 5 / math.log(2) / 10]
    assert difference.by_seed == pytest.approx(expected)
    assert difference.value == pytest.approx(np.mean(expected))


def test_the_same_seed_gives_the_same_interval_and_equal_runs_no_difference():
    draw = np.random.default_rng(4)
    base, sizes = draw.random((3, 50)) * 100, draw.integers(10, 90, 50)
    other = base + draw.normal(0, 1, base.shape)
    strata = np.arange(50) % 3
    first, again = (paired_difference(base, other, sizes, strata, seed=9) for _ in range(2))
    assert first == again
    same = paired_difference(base, base, sizes, strata, seed=9)
    assert same.value == 0 and same.interval == [0, 0]


def test_documents_are_drawn_within_their_source():
    """Sources that differ among each other, and not within, leave no doubt."""
    bits = np.where(np.arange(40) < 20, 1.0, 5.0)[None] * np.ones((2, 1))
    sizes, strata = np.full(40, 10), np.arange(40) // 20
    apart, _ = resampled(bits, sizes, strata, seed=0)
    mixed, _ = resampled(bits, sizes, np.zeros(40), seed=0)
    assert np.ptp(apart) == pytest.approx(0) and np.ptp(mixed) > 0.02


def test_one_seed_or_one_document_has_no_interval():
    nats = np.ones((1, 5))
    assert paired_difference(nats, 2 * nats, np.ones(5, np.int64), [0] * 5, seed=0).interval is None
    nats = np.ones((3, 1))
    difference = paired_difference(nats, 2 * nats, np.ones(1, np.int64), [0], seed=0)
    assert difference.interval is None and difference.detectable() is None
    assert difference.to_json()["interval"] is None


def test_intervals_of_a_mean_use_students_t():
    assert interval_of_mean([1.0]) is None
    low, high = interval_of_mean([1.0, 2.0, 3.0])
    half = 4.302653 * 1.0 / 3**0.5  # the table's 0.975 quantile of 2 degrees of freedom
    assert (low, high) == pytest.approx((2 - half, 2 + half))


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9), st.floats(-1e3, 1e3))
def test_an_interval_moves_with_its_values(values, by):
    low, high = interval_of_mean(values)
    assert low <= np.mean(values) + 1e-9 and np.mean(values) - 1e-9 <= high
    assert interval_of_mean([v + by for v in values]) == pytest.approx(
        [low + by, high + by], abs=1e-6
    )


def test_a_factor_turns_values_into_another_unit():
    base, other = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 1.0], [1.0, 1.0]])
    sizes = np.ones(2, np.int64)
    percent = paired_difference(base, other, sizes, [0, 0], seed=0, factor=100.0)
    assert percent.by_seed == (50.0, 0.0) and percent.value == 25.0
