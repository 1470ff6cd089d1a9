"""Laws, repeated text, and plans for a budget."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.cli.app import invoke
from train.lab.scaling.laws import BESIROGLU, HOFFMANN, KAPLAN, MUENNIGHOFF, Repeats, rule_of_twenty
from train.lab.scaling.plan import plan


def test_ten_to_the_twenty_is_a_billion_parameters_and_three_days_of_an_h200():
    figures = plan(1e20)
    row = figures.rows[0]
    assert row.by == "20 tokens per parameter"
    assert row.parameters == pytest.approx(0.91e9, rel=0.01)
    assert row.tokens == pytest.approx(18.3e9, rel=0.01)
    assert figures.hours == pytest.approx(70.2, abs=0.1)


@pytest.mark.parametrize("law", [HOFFMANN, BESIROGLU, MUENNIGHOFF, KAPLAN])
def test_no_other_size_of_a_budget_has_less_loss(law):
    for flops in (1e18, 1e21, 1e24):
        size, tokens = law.best.optimum(flops)
        assert 6 * size * tokens == pytest.approx(flops)
        others = size * np.geomspace(0.1, 10, 99)
        assert (law.loss(others, flops / 6 / others) >= law.loss(size, tokens) - 1e-12).all()


def test_published_optima():
    # Hoffmann et al. 2022, table 2 (0.46); Besiroglu et al. 2024 (0.513).
    assert HOFFMANN.best.exponent == pytest.approx(0.46, abs=0.01)
    assert BESIROGLU.best.exponent == pytest.approx(0.513, abs=0.001)
    # Chinchilla itself: 5.76e23 operations, about 70 B parameters and 1.4 T tokens.
    assert rule_of_twenty(5.76e23) == pytest.approx((70e9, 1.4e12), rel=0.02)
    # Muennighoff et al. 2023, equation 17.
    assert MUENNIGHOFF.parameters_for(1e9) == pytest.approx(0.051e9, rel=0.01)


@given(st.floats(1e5, 1e12), st.floats(1e7, 1e13))
def test_at_one_epoch_the_loss_is_chinchillas(size, unique):
    """Of a model no larger than its text calls for."""
    size = min(size, float(HOFFMANN.parameters_for(unique)))
    repeated = Repeats().loss(HOFFMANN, size, unique, unique)
    assert repeated == pytest.approx(HOFFMANN.loss(size, unique))


def test_four_epochs_are_nearly_as_good_as_new_text_and_forty_are_not():
    worth = [Repeats().worth(epochs * 1e9, 1e9, Repeats.tokens) / 1e9 for epochs in (1, 4, 40, 1e4)]
    assert worth[0] == 1
    assert worth[1] == pytest.approx(3.73, abs=0.01)  # by hand: 1 + 15.39 (1 - exp(-3 / 15.39))
    assert worth[2] < 16 and worth[3] == pytest.approx(1 + Repeats.tokens)


def test_too_little_text_makes_the_model_smaller_and_the_loss_higher():
    free, bound = (plan(1e20, unique=unique).rows for unique in (1e12, 2e9))
    for before, after in zip(free, bound, strict=True):
        assert after.epochs == pytest.approx(after.tokens / 2e9)
        if before.loss is not None:
            assert after.bound and not before.bound
            assert after.parameters < before.parameters
            assert after.loss > before.loss
            sizes = before.parameters * np.geomspace(0.05, 5, 200)
            law = {"Hoff": HOFFMANN, "Besi": BESIROGLU, "Muen": MUENNIGHOFF}[after.by[:4]]
            losses = Repeats().loss(law, sizes, 1e20 / 6 / sizes, 2e9)
            assert after.loss <= losses.min() + 1e-9


def test_the_command_prints_the_plan(capsys):
    assert invoke(["scaling", "plan", "--flops", "1e20"]) == 0
    printed = capsys.readouterr().out
    assert "70.2 h of one H200 at 40 %" in printed and "913 M  18.3 B" in printed
    assert invoke("scaling plan --flops 1e20 --unique-tokens 2e9 --gpu H100 --json".split()) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["gpu"] == "H100" and figures["rows"][1]["bound"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan", "--flops is missing"),
        ("plan --flops 0", "--flops"),
        ("plan --flops inf", "--flops"),
        ("plan --flops 1e20 --fit empty.json", "no fit in this file"),
        ("plan --flops 1e20 --mfu 2", "--mfu"),
        ("plan --flops 1e20 --gpu K80", "choose one of H200"),
        ("plan --flops 1e20 --fit nowhere.json", "nowhere.json: cannot be read"),
        ("fit nowhere.csv", "nowhere.csv: cannot be read"),
        ("run nowhere -o out --flops 1e9 --tokens 1e5", "give either --flops or --tokens"),
        ("run nowhere -o out --flops many", "give numbers separated by commas"),
        ("run nowhere -o out --flops 1e9 --sizes 64", "write the hidden size and the layers"),
        ("run nowhere -o out --flops 1e9 --sizes 50x2", "a multiple of 32"),
    ],
)
def test_wrong_use_is_a_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.json").write_text("{}")
    assert invoke(["scaling", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
