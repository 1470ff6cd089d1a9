"""Sources and stages of a recipe's `pretrain`: checked when the recipe is read."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from pydantic import ValidationError

from curate.products.pretraining import PretrainProduct
from curate.steps.recipe import compose
from train.objective_settings import Masked


def test_stages_determine_the_number_of_steps():
    step = PretrainProduct(stages=[{"steps": 30}, {"steps": 12, "context": 64}])
    assert step.steps == 42
    assert [stage.steps for stage in step._config().stages] == [30, 12]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"stages": [{"steps": 3, "contxt": 64}]},
            "unknown setting 'stages.0..contxt'; did you mean stages.context",
        ),
        ({"stages": [{"steps": 3}], "steps": 4}, "set steps to 3"),
        ({"stages": [{"context": 3}]}, "steps"),
        ({"sources": [{"weight": 1}]}, "shards"),
        ({"sources": [{"shards": "a", "weight": -1}]}, "sources.0..weight is -1"),
        ({"sources": [{"shards": "a", "weight": "much"}]}, "weight is 'much': give a number"),
        ({"rows": 6, "stages": [{"steps": 1, "rows": 0}]}, "rows is 0"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValidationError, match=message):
        PretrainProduct(**settings)


def test_a_run_is_known_by_what_is_in_its_sources(tmp_path):
    for name, text in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    moved = shutil.copytree(tmp_path / "a", tmp_path / "moved")

    def identity(place):
        return PretrainProduct(sources=[{"shards": str(place), "name": "x"}]).identity()

    assert identity(tmp_path / "a") == identity(moved) != identity(tmp_path / "b")


def test_texts_that_are_scored_join_those_of_the_recipe():
    def texts(*sets: str, **settings: Any) -> PretrainProduct:
        return compose("pretrain", [("pretrain", settings)], sets).products[0]

    plain, scored = PretrainProduct(), texts("pretrain.eval.news=news.jsonl")
    assert scored.eval == {"news": "news.jsonl"}
    assert scored.lineage() == plain.lineage()
    both = texts("pretrain.eval.b=z", eval={"a": "x", "b": "y"})
    assert both.eval == {"a": "x", "b": "z"}
    with pytest.raises(ValidationError, match="cannot name a text"):
        PretrainProduct(eval={"../news": "news.jsonl"})


def test_a_model_has_settings_in_a_mapping_and_under_dotted_names():
    mapped = PretrainProduct(model={"preset": "30m", "attention": {"window": 64}})
    dotted = PretrainProduct(**{"model": "30m", "model.attention.window": 64})
    for step in (mapped, dotted):
        assert (step._preset, step._changes) == ("30m", {"attention.window": 64})
    assert mapped.identity() != PretrainProduct(model="30m").identity()
    both = PretrainProduct(**{"model": {"layers": 3}, "model.layers": 5, "model.hidden": 64})
    assert (both._preset, both._changes) == ("tiny", {"layers": 5, "hidden": 64})


def test_an_objective_has_settings_in_a_mapping_and_under_dotted_names():
    mapped = PretrainProduct(objective={"kind": "masked", "rate": 0.3})
    dotted = PretrainProduct(**{"objective": "masked", "objective.rate": 0.3})
    for step in (mapped, dotted):
        assert step._config().objective == Masked(rate=0.3)
    with pytest.raises(ValidationError, match=r"unknown setting 'objective\.rat'; did you mean"):
        PretrainProduct(**{"objective": "masked", "objective.rat": 0.3})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model.window", 3, "did you mean attention.window"),
        ("model.position", "alibii", "choose one of rope, learned"),
        ("model.attention.kv_heads", 5, "must divide attention.heads"),
        ("model.layers", "many", "layers is 'many': give a whole number"),
    ],
)
def test_a_wrong_setting_of_a_model_is_one_line_before_anything_runs(name, value, message):
    with pytest.raises(ValidationError, match=message):
        PretrainProduct(**{name: value})


def test_changed_evaluation_texts_make_a_run_unfinished_but_not_another_run(tmp_path):
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "one"}\n', encoding="utf-8")
    plain, scored = PretrainProduct(), PretrainProduct(eval={"x": str(text)})
    assert plain.identity() != scored.identity()
    assert plain.lineage() == scored.lineage()
    before = scored.identity()
    text.write_text('{"text": "another"}\n', encoding="utf-8")
    assert scored.identity() != before


def test_a_published_preset_is_trained_as_published_unless_told_otherwise():
    whole = PretrainProduct(model="llama-7b")
    assert (whole.lr, whole.rows, whole.context, whole.warmup) == (3e-4, 2048, 2048, 2000)
    assert whole._budget() is None  # no plan replaces these
    own = PretrainProduct(model="llama-7b", lr=0.01, beta2=0.99)
    assert (own.lr, own.beta2, own.weight_decay) == (0.01, 0.99, 0.1)
    trial = PretrainProduct(model="llama-7b", steps=20)
    assert (trial.rows, trial.context, trial.warmup, trial.lr) == (4, 256, 1, 3e-4)
    for changed in ({"model": {"preset": "llama-7b", "layers": 2}}, {"model.layers": 2}):
        small = PretrainProduct(**({"model": "llama-7b"} | changed))
        assert (small.rows, small.steps, small.lr) == (4, 400, 3e-4)


def test_a_recipe_of_a_published_training_gives_the_same_run_again():
    for settings in ({"model": "llama-7b"}, {"model": "llama-7b", "steps": 20}):
        step = PretrainProduct(**settings)
        assert PretrainProduct(**step.resolved()).identity() == step.identity()


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "tiny", "steps": 20},
        {"model": "llama-7b", "tokens": 1_000_000},
        {"model": "llama-7b", "time": "5m"},
        {"model": "llama-7b", "objective": "chat"},
    ],
)
def test_our_presets_a_budget_and_fine_tuning_take_nothing_from_papers(settings):
    step = PretrainProduct(**settings)
    assert step.model_fields_set == {*settings}


def test_what_is_published_is_said_in_one_line():
    step = PretrainProduct(model="llama-7b", steps=20)
    line = step._published_line(step._config())
    assert line is not None and "\n" not in line
    assert "(Touvron et al. 2023a, table 2 and section 2.3), as published: " in line
    assert "rows 4 (2,048)" in line
    assert PretrainProduct(model="tiny", steps=20)._published_line(step._config()) is None
