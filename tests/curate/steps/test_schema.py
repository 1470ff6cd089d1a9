"""The schema of recipes: made from the fields, and as checked in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from curate.steps import registry
from curate.steps.contracts import Step
from curate.steps.recipe import parse
from curate.steps.registry import (
    FILE,
    REGISTRY,
    class_schema,
    definition_of,
    recipe_schema,
    schema_text,
    shipped_schema,
    step_class,
)

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted((ROOT / "pipelines").glob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return recipe_schema(list(REGISTRY))


def is_valid(recipe: Any) -> bool:
    validator = jsonschema.Draft202012Validator(shipped_schema(FILE))
    return bool(validator.is_valid(recipe))


def test_the_checked_in_schema_is_that_of_the_fields(schema: dict[str, Any]) -> None:
    written = (ROOT / "pipelines" / FILE).read_text(encoding="utf-8")
    assert written == schema_text(schema), "run `make reference`"
    assert json.loads(written) == schema


def test_an_entry_that_is_missing_or_of_an_older_source_falls_back_to_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped, fields = shipped_schema(FILE)["$defs"], class_schema(step_class("c4"))
    assert definition_of("c4") is shipped["c4"]
    older = {**shipped["c4"], "$comment": "0 curate.filters.c4", "properties": {}}
    monkeypatch.setitem(shipped, "c4", older)
    assert definition_of("c4") == fields
    monkeypatch.delitem(shipped, "c4")
    assert definition_of("c4") == fields


def test_the_digest_of_fields_changes_with_a_field_and_with_no_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(text: str) -> str:
        (tmp_path / "module.py").write_text(text, encoding="utf-8")
        registry._outside_functions.cache_clear()
        return registry.fields_digest("module:A", ["module"])

    monkeypatch.setattr(registry, "HOME", str(tmp_path))
    text = "class A:\n    most: int = 1\n\n    def apply(self,\n    ) -> None:\n        a = 1\n"
    before = digest(text)
    for changed in (text.replace("a = 1", "b = 2"), "import os\n" + text, "# why\n" + text):
        assert digest(changed) == before
    added = text.replace("    def", "    least: int = 0\n\n    def", 1)
    for changed in (text.replace("most", "least"), text.replace("int", "float", 1), added):
        assert digest(changed) != before
    registry._outside_functions.cache_clear()


@pytest.mark.lab
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
    import llmcurate
    from curate.api.corpus import run_recipe

    assert llmcurate.run_recipe is run_recipe and llmcurate.load_recipe("c4").steps
    with pytest.raises(AttributeError, match="no attribute 'runs_recipe'"):
        llmcurate.runs_recipe  # noqa: B018
