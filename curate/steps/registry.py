"""The registry: names of steps, the classes behind them, and the JSON schema of their settings.

A class says its name by `@step("c4")` (contracts.py). Names map to classes lazily, so that listing
them imports no step: curate/index.json holds where each class stands, and the sources are looked
through for a name that it lacks. Other distributions add steps by the entry point group
`llmcurate.steps` (name = "module:Class").

Editors check recipes with the schema, and the command line and docs/reference are made from it,
so that a setting is written once: as a field of its step. `make reference` writes the schema into
pipelines/recipe.schema.json, from where commands read it without loading a step. An entry holds a
digest of the source of its fields; of a step whose source has changed since, the class is loaded.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.steps.shipped import FOLDER
from llmcurate.base import start
from llmcurate.base.disk.files import text_digest
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.index import declared, index_of
from llmcurate.base.start import HOME

if TYPE_CHECKING:
    from curate.steps.contracts import Settings

WORD = "step"  # the decorator
_declared = index_of("curate")[WORD]
REGISTRY = {name: found.place for name, found in _declared.items()}


def filters() -> list[str]:
    """The names of the filters."""
    return [name for name, place in REGISTRY.items() if place.startswith("curate.filters.")]


def step_names() -> list[str]:
    """All known names, those of installed plug-ins included."""
    return sorted({*REGISTRY, *_plugins()})


def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {p.name: p.value for p in entry_points(group="llmcurate.steps")}


def take_up() -> None:
    """Takes up the steps that the sources declare and the index lacks."""
    _declared.update(declared("curate", WORD))
    REGISTRY.update({name: found.place for name, found in _declared.items()})


def facts(key: str) -> dict[str, dict[str, Any]]:
    """What decorators say under a key, by step."""
    return {step: found.facts[key] for step, found in _declared.items() if key in found.facts}


def is_step(name: str) -> bool:
    """Return whether a step of ours has this name."""
    if name not in REGISTRY and name.isidentifier():
        take_up()
    return name in REGISTRY


def step_class(name: str) -> type[Settings]:
    """The class behind a name; UsageError names the nearest one, RunFailed says why it cannot be
    loaded."""
    place = REGISTRY.get(name) or _plugins().get(name) or (is_step(name) and REGISTRY[name])
    if not place:
        near = get_close_matches(name, step_names(), 1, 0.6 if len(name) > 3 else 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(step_names())}"
        if ":" in name:
            hint = "; a function of yours is named FILE.py:FUNCTION"
        raise UsageError(f"unknown step {name!r}{hint}")
    try:
        return _load(name, place)
    except RunFailed:
        found = declared("curate", WORD).get(name)
        if found is None or found.place == place:
            raise
        REGISTRY[name] = found.place
        return _load(name, found.place)


def _load(name: str, place: str) -> type[Settings]:
    module, _, attribute = place.partition(":")
    start.plug_ins.update({module.partition(".")[0]} - start.OURS)
    try:
        cls: type[Settings] = getattr(importlib.import_module(module), attribute)
    except LlmcurateError:
        raise
    except Exception as error:
        from curate.steps.failures import described

        raise RunFailed(f"step {name} cannot be loaded from {place}: {described(error)}") from error
    if getattr(cls, "name", None) != name:
        raise RunFailed(f"step {name}: the class {place} needs `@step({name!r})` above it")
    return cls


# The schema.

FILE = "recipe.schema.json"
STEPS = "#/$defs/"
READ = "curate.formats.read_settings:ReadSettings"


def recipe_schema(names: list[str] | None = None) -> dict[str, Any]:
    """The schema of recipes of the named steps; by default of all, plug-ins included."""
    from curate.formats.read_settings import ReadSettings

    names = step_names() if names is None else names
    definitions = {name: _with_source(name, step_class(name)) for name in names}
    for name in names:
        definitions |= definitions[name].pop("$defs", {})
    variants = [n for n in names if "variant" in definitions[n]["properties"]]
    alone = {n: [{"type": "string"}] if step_class(n).plain_setting else [] for n in names}
    settings = {n: {"anyOf": [{"$ref": STEPS + n}, *alone[n], {"type": "null"}]} for n in names}
    step = {
        "anyOf": [
            {"enum": ["cut", *names]},
            {"type": "string", "pattern": f"^({'|'.join(variants)})@"},
            {
                "type": "object",
                "properties": settings,
                "patternProperties": {f"^{n}@": settings[n] for n in variants},
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]
    }
    paths = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipe of llmcurate",
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Name of the recipe."},
            "description": {"type": "string", "description": "One line on its purpose."},
            "paper": {"type": "string", "description": "Where its steps were published."},
            "input": {
                "anyOf": [{"type": "string"}, paths],
                "description": "Input files; those of the command line replace them.",
            },
            "read": {"$ref": STEPS + "read"},
            "columns": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Columns of corpus/ beside id and text; `attributes` are scores and"
                " edits, `-attributes` all columns but these.",
            },
            "steps": {"type": "array", "minItems": 1, "items": step},
        },
        "required": ["steps"],
        "additionalProperties": False,
        "$defs": {"read": _with_source("read", ReadSettings), **definitions},
    }


def schema_text(schema: dict[str, Any]) -> str:
    """The schema as its file holds it: one line a setting."""
    definitions = []
    for name, definition in schema["$defs"].items():
        settings = ",\n   ".join(_members(definition.get("properties", {})))
        rest = _members({k: v for k, v in definition.items() if k != "properties"})
        body = ",\n  ".join([*rest, f'"properties": {{\n   {settings}\n  }}'])
        definitions.append(f'"{name}": {{\n  {body}\n }}')
    joined = ",\n ".join(definitions)
    head = ",\n".join(_members({k: v for k, v in schema.items() if k != "$defs"}))
    return f'{{\n{head},\n"$defs": {{\n {joined}\n}}\n}}\n'


def _members(values: dict[str, Any]) -> list[str]:
    return [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in values.items()]


@cache
def shipped_schema() -> dict[str, Any]:
    """The schema of the steps in the package, as `make reference` wrote it."""
    text = (FOLDER / FILE).read_text(encoding="utf-8")
    return dict(json.loads(text))


def definition_of(step: str) -> dict[str, Any]:
    """Description, paper and settings of a step: as they were written, where the source of its
    fields is the same, else of the class, which is loaded. UsageError for an unknown step."""
    definition: dict[str, Any] = shipped_schema()["$defs"].get(step, {})
    digest, _, modules = definition.get("$comment", "").partition(" ")
    if digest == fields_digest(_place(step), modules.split()):
        return definition
    from curate.formats.read_settings import ReadSettings

    return class_schema(ReadSettings if step == "read" else step_class(step))


def _place(step: str) -> str:
    return READ if step == "read" else REGISTRY.get(step, "")


def _with_source(step: str, model: Any) -> dict[str, Any]:
    """The schema of a step with a digest of the source of its fields, and with its modules."""
    definition = class_schema(model)
    with_fields = (kind for kind in model.__mro__ if getattr(kind, "model_fields", None))
    kinds = (model, *with_fields, getattr(model, "described_in", None) or model)
    modules = list(dict.fromkeys(kind.__module__ for kind in kinds))
    digest = fields_digest(_place(step), modules)
    return {"$comment": " ".join([digest, *modules]), **definition}


def settings_of(step: str) -> list[str]:
    """The names of the settings of a step."""
    return [*definition_of(step)["properties"]]


def summary_of(step: str) -> str:
    """One line on the step."""
    return str(definition_of(step).get("description", ""))


LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
NO_LIMIT = 1 << 31  # what lies beyond concerns the machine, not the user


def limits_text(field: dict[str, Any]) -> list[str]:
    """The limits of a number in words."""
    stated = {k: word for k, word in LIMITS.items() if abs(field.get(k, NO_LIMIT)) < NO_LIMIT}
    texts = [f"{word} {field[k]:,}" for k, word in stated.items()]
    if {"minimum", "maximum"} <= field.keys() and len(texts) == 2:
        return [f"{field['minimum']:,} to {field['maximum']:,}"]
    return texts


def type_text(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """The type of a setting with its choices and limits: `integer, at least 1`."""
    if "anyOf" in field:
        kinds = [type_text(kind, schema) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join(kinds)
    if "$ref" in field:
        shape = schema["$defs"][field["$ref"].rpartition("/")[2]]["properties"]
        return f"mapping of {', '.join(shape)}"
    if "const" in field:
        return str(field["const"])
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    kind = str(field.get("format" if field.get("format") == "path" else "type", "any"))
    if kind == "array" and "prefixItems" in field:
        return f"list of {len(field['prefixItems'])}"
    if kind == "array":
        return f"list of {type_text(field.get('items', {}), schema)}"
    if kind == "object":
        values = field.get("additionalProperties")
        return "mapping" + (f" to {type_text(values, schema)}" if isinstance(values, dict) else "")
    return ", ".join(
        [{"string": "text", "boolean": "true or false"}.get(kind, kind), *limits_text(field)]
    )


def class_schema(model: Any) -> dict[str, Any]:
    """The schema of the settings of one class, without titles; those of the class itself come
    before those that others share, but where it has SECTIONS, by the names that open them. A list
    that is also read from one string may be either.
    """
    schema = dict(model.model_json_schema())
    own, fields = get_annotations(model), schema.pop("properties", {})
    if sections := getattr(model, "SECTIONS", {}):
        own, section = fields, ""
        for name, field in fields.items():
            section = sections.get(name, section)
            field |= {"section": section} if section else {}
    schema["properties"] = {n: fields[n] for n in sorted(fields, key=lambda n: n not in own)}
    for definition in [schema, *schema.get("$defs", {}).values()]:
        definition.pop("title", None)
        for field in definition.get("properties", {}).values():
            field.pop("title", None)
            for part in (field, *field.get("anyOf", ())):  # whole numbers without `.0`
                for key in LIMITS:
                    if isinstance(part.get(key), float) and part[key].is_integer():
                        part[key] = int(part[key])
            for kind in field.get("anyOf", ()):
                if kind.get("type") == "string" and "enum" in field:
                    kind["enum"] = field.pop("enum")
    schema["description"] = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    if paper := getattr(model, "paper", ""):
        schema["paper"] = paper
    for name, field in schema["properties"].items():
        if _read_from_text(model, name):
            if field.get("type") == "array":
                moved = [key for key in ("type", "items", "minItems") if key in field]
                field["anyOf"] = [{key: field.pop(key) for key in moved}]
            kinds = field.get("anyOf", [])
            if any(kind.get("type") == "array" for kind in kinds):
                kinds.insert(0, {"type": "string"})
        field.setdefault("description", "")
    return schema


def _read_from_text(model: Any, name: str) -> bool:
    """Whether a list may be written as one string: a validator sees the value before its type."""
    metadata = model.model_fields[name].metadata
    if any(type(m).__name__ == "BeforeValidator" for m in metadata):
        return True
    validators = model.__pydantic_decorators__.field_validators.values()
    return any(v.info.mode == "before" and name in v.info.fields for v in validators)


def fields_digest(location: str, modules: Iterable[str]) -> str:
    """A digest of a class's location and of all that its modules say outside of functions: fields,
    constants, docstrings of classes. No module is loaded; one without a file has no lines."""
    lines = [location]
    for module in modules:
        lines += _outside_functions(module)
    return text_digest("\n".join(lines))[:16]


@cache
def _outside_functions(module: str) -> list[str]:
    lines: list[str] = []
    depth: float = math.inf  # of the function or import that a line belongs to
    path = Path(HOME, *module.split(".")).with_suffix(".py")
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        indent = len(line) - len(line.lstrip())
        if line.strip() and (indent < depth or (indent == depth and line[indent] not in ")]}")):
            left_out = line.lstrip().startswith(("def ", "async ", "@", "import ", "from ", "#"))
            depth = indent if left_out else math.inf
        if depth == math.inf and line.strip():
            lines.append(line)
    return lines
