"""Figures of scores against their definitions, written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.scoring.quality import measures

SCORES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=30)


@st.composite
def two_sets(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    good, rest = draw(SCORES), draw(SCORES)
    return np.array(good + rest), np.arange(len(good) + len(rest)) < len(good)


def pairs_won(scores: np.ndarray, good: np.ndarray) -> float:
    won = [(a > b) + 0.5 * (a == b) for a in scores[good] for b in scores[~good]]
    return sum(won) / len(won)


def precision_by_threshold(scores: np.ndarray, good: np.ndarray) -> float:
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        kept = scores >= threshold
        recall = good[kept].sum() / good.sum()
        total += (recall - before) * good[kept].mean()
        before = recall
    return total


@given(two_sets())
def test_the_areas_are_what_their_definitions_say(sets: tuple[np.ndarray, np.ndarray]) -> None:
    assert math.isclose(measures.roc_auc(*sets), pairs_won(*sets), abs_tol=1e-12)
    expected = precision_by_threshold(*sets)
    assert math.isclose(measures.average_precision(*sets), expected, abs_tol=1e-12)


@given(SCORES, st.floats(0.001, 1))
def test_a_threshold_keeps_the_fraction_and_more_only_by_ties(
    scores: list[float], fraction: float
) -> None:
    values = np.array(scores)
    threshold = measures.threshold_of(values, fraction)
    wanted = measures.kept_count(len(scores), fraction)
    assert wanted >= fraction * len(scores) * (1 - 1e-9)
    assert (values >= threshold).sum() >= wanted > (values > threshold).sum()


@pytest.mark.parametrize(
    ("documents", "fraction", "kept"),
    [(10, 0.1, 1), (1000, 0.29, 290), (3, 0.5, 2), (5, 1.0, 5), (7, 1e-9, 1)],
)
def test_a_fraction_is_rounded_up_but_not_by_binary_dust(
    documents: int, fraction: float, kept: int
) -> None:
    assert measures.kept_count(documents, fraction) == kept


def test_a_score_that_is_a_probability_has_no_calibration_error() -> None:
    scores = np.repeat([0.05, 0.75], [20, 4])
    good = np.array([True, *[False] * 19, True, True, True, False])
    calibrated = measures.calibration(scores, good)
    assert calibrated["error"] == pytest.approx(0)
    assert [b["documents"] for b in calibrated["bins"]] == [20, 0, 0, 0, 0, 0, 0, 4, 0, 0]
    assert measures.calibration(1 - scores, good)["error"] > 0.5


@given(two_sets())
def test_figures_add_up_and_curves_end_at_one(sets: tuple[np.ndarray, np.ndarray]) -> None:
    scores, good = sets
    figures = measures.measure(scores, good)
    assert figures is not None
    assert sum(d["documents"] for d in figures["deciles"]) == len(scores)
    assert sum(d["good"] for d in figures["deciles"]) == good.sum()
    assert sum(b["documents"] for b in figures["calibration"]["bins"]) == len(scores)
    assert figures["curves"]["roc"][0] == [0, 0]
    assert figures["curves"]["roc"][-1] == [1, 1]
    assert figures["curves"]["precision_recall"][-1][0] == 1
    assert all(row["kept"] >= row["keep"] - 1e-9 for row in figures["thresholds"])


def test_measures_need_both_good_and_bad_examples() -> None:
    assert measures.measure(np.array([0.5]), np.array([True])) is None
    assert measures.measure(np.zeros(0), np.zeros(0, np.bool_)) is None


def agreed(neither: int, good: int, kept: int, both: int) -> dict[str, Any]:
    """The agreement of documents that are rejected, good and rejected, kept, good and kept."""
    numbers = (neither, good, kept, both)
    scores = np.repeat([0.0, 0.49, 0.5, 1.0], numbers)
    return measures.agreement(scores, np.repeat([False, True, False, True], numbers))


def test_agreement_is_what_its_definitions_say() -> None:
    # accuracy (3 + 4) / 10; chance 0.5 * 0.6 + 0.5 * 0.4; kappa (0.7 - 0.5) / (1 - 0.5)
    found = agreed(3, 2, 1, 4)
    assert (found["accuracy"], found["f1"]) == (0.7, 8 / 11)
    assert math.isclose(found["kappa"], 0.4)
    assert agreed(5, 0, 0, 5)["kappa"] == 1 and agreed(0, 5, 5, 0)["kappa"] == -1


def test_the_interval_of_kappa_is_the_large_sample_one_for_many_documents() -> None:
    counts = np.array([3000, 2000, 1000, 4000])
    p, n = counts.reshape(2, 2) / counts.sum(), counts.sum()  # kept, good
    kept, good = p.sum(1), p.sum(0)
    chance, same = float(kept @ good), float(np.trace(p))
    # Fleiss, Cohen and Everitt 1969, equation 13
    terms = sum(
        p[i, j] * ((1 - chance) * (i == j) - (good[i] + kept[j]) * (1 - same)) ** 2
        for i in range(2) for j in range(2)
    )  # fmt: skip
    variance = (terms - (same * chance - 2 * chance + same) ** 2) / (n * (1 - chance) ** 4)
    half = 1.96 * math.sqrt(variance)
    assert np.allclose(agreed(*counts)["kappa_interval"], (0.4 - half, 0.4 + half), atol=1e-3)


def test_few_documents_without_a_disagreement_are_not_certain() -> None:
    (few, most), (many, _) = (agreed(n, 0, 0, n)["kappa_interval"] for n in (5, 500))
    assert few < 0.75 and many > 0.98 and 0.9 < most < 1
