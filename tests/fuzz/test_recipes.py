"""Recipes from strangers: a recipe, or one line that names the file; nothing is run or read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import yaml
from hypothesis import given

from curate.steps.recipe import parse
from curate.steps.registry import REGISTRY, step_class
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
def test_odd_values_in_a_recipe_are_one_line(seed: int) -> None:
    text = json.dumps(damaged_tree(TREES[seed % len(TREES)], seed))
    result = outcome(lambda: _parsed(text))
    assert result is None or "stranger.yaml" in str(result)


@FUZZ
@given(seed=SEEDS)
def test_odd_settings_of_any_step_are_one_line(seed: int) -> None:
    draw = random.Random(seed)
    name = draw.choice(NAMES)
    fields = list(step_class(name).model_fields)
    settings = {draw.choice([*fields, "x"]): draw.choice(ODD) for _ in range(draw.choice((1, 2)))}
    text = json.dumps({"steps": [{name: settings}]})
    result = outcome(lambda: _parsed(text))
    assert result is None or name in str(result) or "needs" in str(result)
