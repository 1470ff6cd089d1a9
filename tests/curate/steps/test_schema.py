"""The schema of recipes: made from the fields, and as checked in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from curate.steps.contracts import Step
from curate.steps.recipe import parse
from curate.steps.registry import REGISTRY, step_class
from curate.steps.schema import FILE, recipe_schema, shipped_schema, text_of

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted((ROOT / "pipelines").glob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return recipe_schema(list(REGISTRY))


def is_valid(recipe: Any) -> bool:
    validator = jsonschema.Draft202012Validator(shipped_schema())
    return bool(validator.is_valid(recipe))


def test_the_checked_in_schema_is_that_of_the_fields(schema: dict[str, Any]) -> None:
    written = (ROOT / "pipelines" / FILE).read_text(encoding="utf-8")
    assert written == text_of(schema), "run `make reference`"
    assert json.loads(written) == schema


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_names_the_schema_and_fits_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.splitlines()[0] == f"# yaml-language-server: $schema={FILE}"
    assert is_valid(yaml.safe_load(text))


@pytest.mark.parametrize(
    "steps",
    [
        ["c4", "cut", "tokenizer"],
        ["c4@tfds"],
        [{"c4": None}, {"c4@tfds": {"min_sentences": 2}}],
        [{"language": {"keep": "en,de"}}, {"url_filter": {"domains": "list.txt"}}],
        [{"dedup_minhash": {"verify": 1.0, "bands": None}}],
        [{"mix": {"sources": {"web": ["a", "b"]}, "weights": {"web": 1.0}}}],
    ],
)
def test_the_schema_accepts_what_recipes_may_say(steps: list[Any]) -> None:
    assert is_valid({"steps": steps})
    assert parse(yaml.safe_dump({"steps": steps}), "r.yaml").steps


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"steps": []},
        {"steps": ["c5"]},
        {"steps": ["c4"], "step": 1},
        {"steps": [{"c4": {"min_sentence": 3}}]},
        {"steps": [{"c4": {"min_sentences": -1}}]},
        {"steps": [{"c4": {}, "pii": {}}]},
        {"steps": ["pii@x"]},
        {"steps": ["c4"], "read": {"batch_rows": 0}},
    ],
)
def test_the_schema_refuses_what_recipes_may_not_say(recipe: Any) -> None:
    assert not is_valid(recipe)


LIMITS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}


def every_setting(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(step, setting, schema) of all settings."""
    return [
        (step, setting, field)
        for step, definition in schema["$defs"].items()
        for setting, field in definition["properties"].items()
    ]


def test_every_setting_is_described_in_whole_sentences(schema: dict[str, Any]) -> None:
    fragments = [
        f"{step}.{setting}: {field['description']!r}"
        for step, setting, field in every_setting(schema)
        if not re.fullmatch(r"[A-Z0-9`'].*\.", field["description"], re.DOTALL)
    ]
    assert fragments == []


def test_every_number_has_a_limit(schema: dict[str, Any]) -> None:
    unlimited = [
        f"{step}.{setting}"
        for step, setting, field in every_setting(schema)
        for kind in (field, *field.get("anyOf", ()))
        if kind.get("type") in ("integer", "number") and not LIMITS & kind.keys()
    ]
    assert unlimited == []


def test_every_step_is_described_in_a_sentence(schema: dict[str, Any]) -> None:
    for name in REGISTRY:
        assert schema["$defs"][name]["description"].endswith("."), name
        assert issubclass(step_class(name), Step) or schema["$defs"][name]["properties"]


def test_the_package_exports_its_functions_lazily() -> None:
    import curate
    from curate.api.run import run_recipe

    assert curate.run_recipe is run_recipe and curate.load("c4").steps
    with pytest.raises(AttributeError, match="no attribute 'runs_recipe'"):
        curate.runs_recipe  # noqa: B018
