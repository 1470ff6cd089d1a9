"""Recipes from strangers: a recipe, or one line that names the file; nothing is run or read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from curate.steps.recipe import parse
from curate.steps.registry import REGISTRY, step_class
from llmcurate.base.errors import UsageError
from tests.fuzz.mutations import FUZZ, ODD, SEEDS, damaged, damaged_tree, outcome

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [path.read_text() for path in sorted((ROOT / "pipelines").glob("*.yaml"))]
NAMES = sorted(REGISTRY)
TREES = [yaml.safe_load(text) for text in TEXTS]


def _parsed(text: str) -> None:
    recipe = parse(text, "stranger.yaml")
    assert str(parse(str(recipe), "again.yaml")) == str(recipe)


@FUZZ
@given(seed=SEEDS)
def test_a_damaged_recipe_is_a_recipe_or_one_line(seed: int) -> None:
    text = damaged(TEXTS[seed % len(TEXTS)].encode(), seed).decode("utf-8", "replace")
    result = outcome(lambda: _parsed(text))
    assert result is None or "stranger.yaml" in str(result)


@FUZZ
@given(seed=SEEDS)
def test_odd_values_in_a_recipe_are_a_one_line_error(seed: int) -> None:
    text = json.dumps(damaged_tree(TREES[seed % len(TREES)], seed))
    result = outcome(lambda: _parsed(text))
    assert result is None or "stranger.yaml" in str(result)


@pytest.mark.parametrize(
    "step",
    [
        {"tokenizer": {"reserved": 1 << 40}},  # had all of their names made
        {"perplexity": {"model": "x.bin", "keep": 5}},
        {"dedup_minhash": {"preset": []}},
        {"pretrain": {"stages": 7}},
        {"mix": {"sources": {"a": "b"}, "quality": {"preset": "olmo3", "edges": 3}}},
        {"dedup_bloom": {"expected": "9" * 400}},  # OUT/recipe.yaml had a number that is none
        {"url_filter": {"keep": "\ud800"}},
    ],
    ids=lambda step: next(iter(step)),
)
def test_settings_that_once_crashed_or_hung_are_refused_in_one_line(step: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"stranger\.yaml|step "):
        parse(json.dumps({"steps": [step]}), "stranger.yaml")


def test_an_unknown_profile_is_refused_when_the_run_is_planned() -> None:
    recipe = parse("{steps: [{gopher_quality: {profile: nowhere}}]}", "stranger.yaml")
    assert "nowhere" in str(recipe)
    with pytest.raises(UsageError, match="profile nowhere: neither a language"):
        recipe.digest()


@FUZZ
@given(seed=SEEDS)
def test_odd_settings_of_any_step_are_a_one_line_error(seed: int) -> None:
    draw = random.Random(seed)
    name = draw.choice(NAMES)
    fields = list(step_class(name).model_fields)
    settings = {draw.choice([*fields, "x"]): draw.choice(ODD) for _ in range(draw.choice((1, 2)))}
    text = json.dumps({"steps": [{name: settings}]})
    result = outcome(lambda: _parsed(text))
    said = str(result)
    assert result is None or name in said or "needs" in said or "not YAML" in said
