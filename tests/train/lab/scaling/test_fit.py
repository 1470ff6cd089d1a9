"""Fits of scaling laws: points made from published constants give the constants back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from curate.lab.scaling import LawFits, plan_lines
from llmcurate.base.errors import LlmcurateError
from train.lab.scaling.fit import (
    ENVELOPE,
    ISOFLOP,
    PARAMETRIC,
    Curve,
    Measured,
    fit,
    points_of,
    read,
)
from train.lab.scaling.laws import (
    BESIROGLU,
    HOFFMANN,
    KAPLAN,
    Chinchilla,
    Kaplan,
    Repeats,
)
from train.lab.scaling.laws import fit as fit_law
from train.lab.scaling.plan import plan

BUDGETS = np.geomspace(1e18, 1e22, 9)
SAID = "repetition: an R* is at the limit of the fit: the points do not determine it"
TIMES = np.geomspace(1 / 6, 6, 9)  # the sizes of a budget, over its best


def made(law, noise=0.0, seed=0, around=BESIROGLU):
    """(N, D, loss) of 9 sizes at each of 9 budgets, losses off by a share ``noise``."""
    pairs = [(around.best.optimum(c)[0] * t, c) for c in BUDGETS for t in TIMES]
    sizes, flops = np.array(pairs).T
    tokens = flops / 6 / sizes
    off = np.exp(noise * np.random.default_rng(seed).standard_normal(len(sizes)))
    return sizes, tokens, law.loss(sizes, tokens) * off


def measured(sizes, tokens, losses, curves=(), **columns):
    names = ("parameters", "tokens", "loss", *columns)
    values = zip(sizes, tokens, losses, *columns.values(), strict=True)
    rows = [dict(zip(names, map(float, row), strict=True)) for row in values]
    return Measured(points_of(rows, "made"), list(curves))


@pytest.mark.parametrize("law", [HOFFMANN, BESIROGLU], ids=["Hoffmann", "Besiroglu"])
def test_without_noise_the_published_constants_come_back(law):
    fitted, _ = fit_law(Chinchilla, *made(law))
    assert vars(fitted) == pytest.approx(vars(law), rel=1e-5)


@pytest.mark.parametrize("law", [HOFFMANN, BESIROGLU], ids=["Hoffmann", "Besiroglu"])
def test_with_noise_of_a_fifth_of_a_percent_exponents_are_within_0_02(law):
    for seed in range(10):
        fitted, _ = fit_law(Chinchilla, *made(law, noise=0.002, seed=seed))
        assert fitted.alpha == pytest.approx(law.alpha, abs=0.02)
        assert fitted.beta == pytest.approx(law.beta, abs=0.02)
        assert fitted.e == pytest.approx(law.e, abs=0.05)
        assert fitted.best.exponent == pytest.approx(law.best.exponent, abs=0.01)


@pytest.mark.parametrize("draws", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(draws):
    """95 % of 5 constants and 8 draws of noise would be 38."""
    held = 0
    for seed in range(draws):
        points = measured(*made(BESIROGLU, noise=0.005, seed=seed))
        intervals = fit(points, resamples=40).approaches[PARAMETRIC].intervals
        held += sum(low <= getattr(BESIROGLU, n) <= high for n, (low, high) in intervals.items())
    assert 0.75 <= held / (5 * draws) <= 1


def test_kaplans_constants_come_back():
    sizes, tokens, losses = made(KAPLAN)
    assert vars(fit_law(Kaplan, sizes, tokens, losses)[0]) == pytest.approx(vars(KAPLAN), 1e-4)
    noisy = made(KAPLAN, noise=0.002, seed=1)
    fitted, _ = fit_law(Kaplan, *noisy)
    assert fitted.alpha_n == pytest.approx(KAPLAN.alpha_n, abs=0.005)
    assert fitted.alpha_d == pytest.approx(KAPLAN.alpha_d, abs=0.005)
    assert fitted.best.exponent == pytest.approx(KAPLAN.best.exponent, abs=0.02)


def test_kaplans_law_takes_parameters_without_embeddings():
    sizes, tokens, losses = made(KAPLAN)
    rounds: list[None] = []
    points = measured(2 * sizes, tokens, losses, non_embedding=sizes)
    figures = fit(points, resamples=5, on_resample=lambda: rounds.append(None))
    assert len(rounds) % 5 == 0 and rounds  # 5 of each approach
    assert figures.kaplan.law["nc"] == pytest.approx(KAPLAN.nc, rel=1e-3)


@pytest.fixture(scope="module")
def agreed():
    """All approaches on points and training curves of one law, with a little noise."""
    sizes = np.geomspace(1e7, 3e11, 30)
    flops = np.geomspace(BUDGETS[0], BUDGETS[-1], 100)
    curves = [Curve(n, flops, BESIROGLU.loss(n, flops / 6 / n)) for n in sizes]
    return fit(measured(*made(BESIROGLU, noise=0.001), curves=curves), resamples=100)


@pytest.mark.parametrize("name", [ENVELOPE, ISOFLOP, PARAMETRIC])
def test_all_approaches_find_the_best_sizes_of_one_law(agreed, name):
    figures = agreed.approaches[name]
    best = figures.best
    assert figures.exponent == pytest.approx(BESIROGLU.best.exponent, abs=0.015)
    low, high = figures.interval
    assert low <= figures.exponent <= high
    for flops in (1e19, 1e21):
        expected = BESIROGLU.best.optimum(flops)[0]
        assert best.optimum(flops)[0] == pytest.approx(expected, rel=0.08)
    low, high = figures.interval_at(1e20)
    assert low <= best.optimum(1e20)[0] <= high


def test_the_same_seed_gives_the_same_figures():
    points = measured(*made(BESIROGLU, noise=0.001))
    first, again, other = (fit(points, resamples=10, seed=seed) for seed in (0, 0, 1))
    assert first == again
    first, other = (each.approaches[PARAMETRIC] for each in (first, other))
    assert first.law == other.law and first.interval != other.interval


def test_a_budget_whose_best_size_lies_outside_the_sizes_is_not_fitted():
    sizes, tokens, losses = made(BESIROGLU)
    small = sizes < 0.5 * np.repeat([BESIROGLU.best.optimum(c)[0] for c in BUDGETS], len(TIMES))
    figures = fit(measured(sizes[small], tokens[small], losses[small]), resamples=5)
    isoflop = figures.approaches[ISOFLOP]
    assert {each.parameters for each in isoflop.parabolas} == {None}
    assert isoflop.reason.startswith("fewer than 2 budgets")
    assert figures.approaches[ENVELOPE].reason


def test_the_worth_of_repeated_text_is_fitted_beside_the_law():
    sizes, tokens, losses = made(HOFFMANN)
    unique, repeats = 1e9, Repeats(tokens=9.0, parameters=4.0)
    more = np.array([(n, unique * e) for n in (2e7, 1e8, 1e9, 8e9) for e in (2, 4, 8, 16, 40)]).T
    of_more = repeats.loss(HOFFMANN, *more, unique)
    sizes, tokens = np.append(sizes, more[0]), np.append(tokens, more[1])
    distinct = np.append(tokens[: -len(of_more)], np.full(len(of_more), unique))
    points = measured(sizes, tokens, np.append(losses, of_more), unique_tokens=distinct)
    figures = fit(points, resamples=5)
    assert figures.approaches[PARAMETRIC].law["beta"] == pytest.approx(0.28, abs=1e-4)
    assert figures.repeats.tokens == pytest.approx(9.0, rel=0.01)
    assert figures.repeats.parameters == pytest.approx(4.0, rel=0.01)
    assert figures.repeats.points == 20
    assert figures.repeats.intervals["tokens"] == pytest.approx([9.0, 9.0], rel=0.01)


@pytest.mark.filterwarnings("error")
def test_repeated_text_that_is_as_good_as_new_has_its_worth_at_the_limit():
    sizes, tokens, losses = made(HOFFMANN)
    more = np.array([(n, 1e10 * e) for n in (2e7, 5e7) for e in (2, 8, 40)]).T
    distinct = np.append(tokens, np.full(6, 1e10))
    sizes, tokens = np.append(sizes, more[0]), np.append(tokens, more[1])
    losses = np.append(losses, HOFFMANN.loss(*more))
    points = measured(sizes, tokens, losses, unique_tokens=distinct)
    figures = fit(points, resamples=3)
    assert figures.repeats.tokens > 100 and figures.repeats.at_limit
    assert SAID in LawFits(figures, points).warnings()
    bound = plan(1e22, unique=1e9, fitted=figures)
    undetermined = plan(1e22, unique=1e9, fitted=replace(figures, repeats=None))
    assert bound.rows == undetermined.rows  # the published R*
    assert "an R* is at the limit" in plan_lines(bound)[-1] and not undetermined.warnings
    assert not plan(1e22, fitted=figures).warnings  # new text for all


def test_points_that_do_not_determine_an_exponent_are_reported():
    sizes, tokens, losses = made(Chinchilla(e=1.0, a=1e-9, b=400.0, alpha=0.3, beta=0.3))
    fitted = fit(measured(sizes, tokens, losses), resamples=3)
    law = fitted.approaches[PARAMETRIC]
    assert law.law["beta"] == pytest.approx(0.3, abs=1e-3) and law.at_limit
    (warning,) = plan(1e22, fitted=fitted).warnings
    assert PARAMETRIC in warning
    sure = fit(measured(*made(BESIROGLU)), resamples=3).approaches[PARAMETRIC]
    assert not sure.at_limit


def test_few_points_have_no_law_but_reasons():
    figures = fit(measured([1e6, 2e6, 4e6], [1e8, 1e8, 1e8], [3.0, 2.9, 2.8]), resamples=5)
    assert all(each.reason for each in figures.approaches.values())
    assert figures.kaplan.reason and figures.repeats is None


def test_a_table_has_curves_of_its_sizes(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("loss,tokens,parameters\n3,1e6,1e5\n2.5,4e6,1e5\n2.6,1e6,4e5\n")
    table = read(path)
    assert table.points.flops.tolist() == [6e11, 2.4e12, 2.4e12]
    assert [curve.parameters for curve in table.curves] == [1e5, 4e5]
    assert table.curves[0].loss.tolist() == [3.0, 2.5]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "n,d,loss\n1,2,3\n", "parameters of point 1 is missing; every point needs"),
        ("a.csv", "parameters,tokens,loss\n1,2,x\n", "loss of point 1 is 'x'"),
        ("a.csv", "parameters,tokens,loss\n1,2,-3\n", "loss of point 1 is '-3'"),
        ("a.csv", "parameters,tokens,loss\n1,2,3\n", "at least 3 points"),
        ("a.json", "{", "cannot be read"),
        ("a.json", "[1]", "no list of points"),
        ("a.json", '{"points": [{"parameters": 1, "tokens": 2, "loss": true}]}', "3 points"),
        ("none.csv", None, "No such file"),
    ],
)
def test_a_file_without_valid_points_is_a_one_line_error(tmp_path, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(LlmcurateError, match=message) as failure:
        read(path)
    assert failure.value.exit_code == 2 and "\n" not in str(failure.value)


def test_laws_of_any_points_are_finite():
    """Resamples of few points have exponents at their limits."""
    flat = Chinchilla(e=1.0, a=1e-6, b=1e3, alpha=1e-3, beta=4.0)
    assert np.isfinite(flat.best.optimum(1e24)).all()
