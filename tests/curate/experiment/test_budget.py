"""Choosing a model that can be trained within the given minutes, and the tokens of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from curate.api.model_settings import Compare
from curate.experiment import budget
from curate.experiment.budget import Budget, Size
from curate.experiment.runs import Training

PACE = 1e9  # operations a second of a machine that is made up
PARAMETERS = {"tiny": 2e6, "30m": 3e7, "124m": 1.2e8, "350m": 3.5e8, "1b": 1e9}


@pytest.fixture
def timed(monkeypatch):
    """The presets that were timed; a token takes six operations a parameter."""
    names: list[str] = []

    def row(shards, name, training):
        names.append(name)
        pace = PACE / (6 * PARAMETERS[name])
        return budget.Pace(name, PARAMETERS[name], pace, PACE)

    monkeypatch.setattr(budget, "time_model", row)
    monkeypatch.setattr(
        budget, "cost", lambda shards, name, t: (PARAMETERS[name], 6 * PARAMETERS[name])
    )
    return names


def chosen_model(seconds, **settings):
    training = Training("tiny", {}, 1, {}, {})
    chosen = Compare.of(**{"minutes": 1, **settings})
    return budget.largest_model(Path(), chosen, training, seconds)[0].model


def test_the_largest_model_whose_20_tokens_a_parameter_fit_is_chosen(timed):
    need = {name: 20 * size * 6 * size / PACE for name, size in PARAMETERS.items()}
    assert chosen_model(need["30m"] * 1.01) == "30m"
    assert chosen_model(need["124m"] * 0.99) == "30m"
    assert chosen_model(need["124m"] * 1.01) == "124m"


def test_if_no_model_fits_the_budget_the_smallest_is_chosen_and_larger_ones_are_not_timed(timed):
    assert chosen_model(1.0) == "tiny"
    assert timed == ["tiny"]


def test_a_model_that_is_given_stays(timed):
    assert chosen_model(1.0, model="124m") == "124m"


def test_documents_and_epochs_are_tokens_of_the_corpus():
    size = Size(documents=100, tokens=5000, bytes=20_000)
    assert Budget("tokens", 77).tokens(size) == 77
    assert Budget("documents", 10).tokens(size) == 500
    assert Budget("epochs", 1.5).tokens(size) == 7500
