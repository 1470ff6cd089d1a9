"""Choosing bands and rows for a target recall or weighted errors, compared with datasketch."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from curate.dedup.minhash import near_duplicates as choice
from curate.dedup.minhash.near_duplicates import DedupMinhash, curve, predicted


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 0.97])
@pytest.mark.parametrize("permutations", [1, 16, 112, 128, 256])
@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
def test_weighed_errors_give_the_choice_of_datasketch(threshold, permutations, weight):
    from datasketch.lsh import _optimal_param

    theirs = _optimal_param(threshold, permutations, weight, 1 - weight)
    assert choice.least_error(threshold, permutations, weight) == theirs


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("recall", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("permutations", [64, 128])
def test_a_target_of_recall_is_met_by_the_choice_with_least_false_positives(
    threshold, recall, permutations
):
    """Against all choices there are, their areas by the trapezoidal rule."""

    def area(bands, rows, steps=400):
        values = [predicted(bands, rows, threshold * i / steps) for i in range(steps + 1)]
        return (sum(values) - (values[0] + values[-1]) / 2) * threshold / steps

    bands, rows = choice.with_recall(threshold, recall, permutations)
    assert bands * rows <= permutations
    assert predicted(bands, rows, threshold) >= recall
    best = min(
        area(b, r)
        for r in range(1, permutations + 1)
        for b in range(1, permutations // r + 1)
        if predicted(b, r, threshold) >= recall
    )
    assert area(bands, rows) <= best + 1e-5


def test_more_permutations_make_a_steeper_curve():
    areas = []
    for permutations in (32, 128, 512, 4096):
        bands, rows = choice.with_recall(0.8, 0.95, permutations)
        areas.append(predicted(bands, rows, 0.6))
    assert areas == sorted(areas, reverse=True) and areas[0] > 5 * areas[-1]


def test_a_target_that_cannot_be_met_says_what_to_do():
    with pytest.raises(ValueError, match=r"of 3 permutations find a pair .* raise permutations"):
        choice.with_recall(0.5, 0.99, 3)
    with pytest.raises(ValidationError, match="raise permutations"):
        DedupMinhash(threshold=0.5, recall=0.99, permutations=3)


def test_a_threshold_chooses_instead_of_the_preset():
    assert DedupMinhash(threshold=0.8).banding == choice.least_error(0.8, 128)
    step = DedupMinhash(threshold=0.9, permutations=64, preset="dclm")
    assert step.banding == choice.least_error(0.9, 64)
    assert DedupMinhash(**step.resolved()).banding == step.banding
    assert f"{step.banding[0]} bands of {step.banding[1]} rows" in step.forecast()[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recall": 0.9}, "recall: needs threshold"),
        ({"threshold": 0.8, "recall": 0.9, "false_positive_weight": 0.4}, "exclude each other"),
        ({"permutations": 64}, "permutations: needs threshold"),
        ({"threshold": 0.8, "bands": 3}, "threshold and bands exclude"),
        ({"threshold": 0.8, "rows": 3}, "threshold and rows exclude"),
        ({"false_positive_weight": 0.4}, "false_positive_weight: needs threshold"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        DedupMinhash(**settings)


def test_the_report_gets_the_curve_with_its_middle():
    drawn = curve(14, 8)
    assert drawn.x[80] == 0.8 and drawn.y[80] == predicted(14, 8, 0.8)
    x, y, label = drawn.mark
    assert predicted(14, 8, x) == pytest.approx(y) and f"{x:.3f}" in label
