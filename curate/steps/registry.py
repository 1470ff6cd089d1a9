"""The registry: step names, their classes, and the JSON schema of their settings.

Classes are loaded lazily. curate/index.json has the place of each class with a decorator such as
`@step("c4")`; for other names, the sources are searched. Other packages add steps by the entry
point group `llmcurate.steps`. pipelines/recipe.schema.json has the schema, with a digest of the
source of each step's fields; if that source has changed, the schema comes from the step's class."""

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
    return [name for name, place in REGISTRY.items() if place.startswith("curate.filters.")]


def step_names() -> list[str]:
    """Return all known step names, including those of installed plug-ins."""
    return sorted({*REGISTRY, *_plugins()})


def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {p.name: p.value for p in entry_points(group="llmcurate.steps")}


def add_declared() -> None:
    """Search curate's source files for `@step(...)` and add the steps that index.json lacks."""
    _declared.update(declared("curate", WORD))
    REGISTRY.update({name: found.place for name, found in _declared.items()})


def facts(key: str) -> dict[str, dict[str, Any]]:
    """Return {step: value} for each step whose `@step` has the keyword argument `key`."""
    return {step: found.facts[key] for step, found in _declared.items() if key in found.facts}


def is_step(name: str) -> bool:
    """Return True if this package has a step of this name."""
    if name not in REGISTRY and name.isidentifier():
        add_declared()
    return name in REGISTRY


def step_class(name: str) -> type[Settings]:
    """Return a step's class. Raise UsageError for an unknown name, RunFailed if it cannot be
    loaded."""
    place = REGISTRY.get(name) or _plugins().get(name) or (is_step(name) and REGISTRY[name])
    if not place:
        words = {*name.lower().split("_")}
        shared = {n: len(words.intersection(n.split("_"))) for n in step_names()}
        near = get_close_matches(name, shared, 1, 0.6 if len(name) > 3 else 0.5)
        near = near or [n for n in shared if shared[n] == max(1, *shared.values())]
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(step_names())}"
        if ":" in name:
            hint = "; write your own function as FILE.py:FUNCTION"
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
        from curate.steps.failures import error_with_place

        raise RunFailed(
            f"step {name} cannot be loaded from {place}: {error_with_place(error)}"
        ) from error
    if getattr(cls, "name", None) != name:
        raise RunFailed(f"step {name}: the class {place} needs `@step({name!r})` above it")
    return cls


FILE = "recipe.schema.json"
OPTIONS = "options.schema.json"  # settings of the commands that run no step
STEPS = "#/$defs/"
READ = "curate.formats.read_settings:ReadSettings"


def recipe_schema(names: list[str] | None = None) -> dict[str, Any]:
    """Return the JSON schema of recipes with the named steps; by default all, plug-ins included."""
    from curate.formats.read_settings import ReadSettings

    names = step_names() if names is None else names
    definitions = {name: with_source(step_class(name), _place(name)) for name in names}
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
            "description": {"type": "string", "description": "Purpose of the recipe in one line."},
            "paper": {"type": "string", "description": "Publication of its steps."},
            "input": {
                "anyOf": [{"type": "string"}, paths],
                "description": "Input files; those on the command line replace them.",
            },
            "read": {"$ref": STEPS + "read"},
            "columns": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Columns of corpus/ besides id and text. `attributes`: scores and"
                " edits; `-attributes`: all columns except these.",
            },
            "steps": {"type": "array", "minItems": 1, "items": step},
        },
        "required": ["steps"],
        "additionalProperties": False,
        "$defs": {"read": with_source(ReadSettings, READ), **definitions},
    }


def schema_text(schema: dict[str, Any]) -> str:
    """Return the schema as written to its file: one line per setting."""
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
def shipped_schema(file: str) -> dict[str, Any]:
    """Return the schema of the package's steps or of its commands' options, as written by `make
    reference`."""
    text = (FOLDER / file).read_text(encoding="utf-8")
    return dict(json.loads(text))


def shipped_definition(name: str, place: str, file: str = FILE) -> dict[str, Any] | None:
    """Return the settings of a class in the shipped schema, or None if they may have changed. This
    loads no class: pydantic and all classes take 0.3 s of a command's start."""
    definition: dict[str, Any] = shipped_schema(file)["$defs"].get(name, {})
    digest, _, modules = definition.get("$comment", "").partition(" ")
    return definition if digest == fields_digest(place, modules.split()) else None


def definition_of(step: str) -> dict[str, Any]:
    """Return description, paper and settings of a step. They come from the shipped schema if it is
    up to date, else from the class. Raise UsageError for an unknown step."""
    if definition := shipped_definition(step, _place(step)):
        return definition
    from curate.formats.read_settings import ReadSettings

    return class_schema(ReadSettings if step == "read" else step_class(step))


def _place(step: str) -> str:
    return READ if step == "read" else REGISTRY.get(step, "")


def with_source(model: Any, place: str, *others: str) -> dict[str, Any]:
    """Return the schema of a class, with the modules of its fields, `others` among them, and their
    digest."""
    definition = class_schema(model)
    with_fields = (kind for kind in model.__mro__ if getattr(kind, "model_fields", None))
    kinds = (model, *with_fields, getattr(model, "described_in", None) or model)
    modules = [*dict.fromkeys(kind.__module__ for kind in kinds), *others]
    digest = fields_digest(place, modules)
    return {"$comment": " ".join([digest, *modules]), **definition}


def settings_of(step: str) -> list[str]:
    return [*definition_of(step)["properties"]]


def summary_of(step: str) -> str:
    return str(definition_of(step).get("description", ""))


LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
NO_LIMIT = 1 << 31  # larger limits come from the number's type and are not shown


def limits_text(field: dict[str, Any]) -> list[str]:
    """Return phrases that state the limits of a number, such as "at least 1" or "0 to 9"."""
    stated = {k: word for k, word in LIMITS.items() if abs(field.get(k, NO_LIMIT)) < NO_LIMIT}
    texts = [f"{word} {field[k]:,}" for k, word in stated.items()]
    if {"minimum", "maximum"} <= field.keys() and len(texts) == 2:
        return [f"{field['minimum']:,} to {field['maximum']:,}"]
    return texts


def type_text(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the type of a setting with its choices and limits, as in `integer, at least 1`."""
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
    """Return the JSON schema of a class's settings, without titles. The class's own settings come
    before inherited ones. If the class has SECTIONS, the order is unchanged and each setting names
    its section. METAVARS of the class are metavars of settings in help. The type of a list that
    may be given as one string includes `string`."""
    schema = dict(model.model_json_schema())
    own, fields = get_annotations(model), schema.pop("properties", {})
    if sections := getattr(model, "SECTIONS", {}):
        own, section = fields, ""
        for name, field in fields.items():
            section = sections.get(name, section)
            field |= {"section": section} if section else {}
    for name, metavar in getattr(model, "METAVARS", {}).items():
        fields[name]["metavar"] = metavar
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
    """Return True if the field `name` of a class of settings has a validator that runs before the
    type check and so can turn a string into a list."""
    metadata = model.model_fields[name].metadata
    if any(type(m).__name__ == "BeforeValidator" for m in metadata):
        return True
    validators = model.__pydantic_decorators__.field_validators.values()
    return any(v.info.mode == "before" and name in v.info.fields for v in validators)


def fields_digest(location: str, modules: Iterable[str]) -> str:
    """Return a digest that changes if a class's fields may have changed. It covers the class's
    location and all lines outside functions in `modules`. No module is loaded. A module without a
    file adds no lines."""
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
