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
