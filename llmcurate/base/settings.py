"""Dataclasses of settings: checked by pydantic, and read from untrusted JSON. The string below a
field describes the field."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import json
import re
import sys
import typing
from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pydantic.dataclasses
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from llmcurate.base.errors import LlmcurateError, UsageError

Config = TypeVar("Config")
_hints: Any = functools.cache(typing.get_type_hints)  # slow, so cached
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@functools.cache
def _sentences(module: str) -> dict[str, dict[str, str]]:
    """Return the strings below the fields of a module's classes: {class: {field: string}}."""
    return {
        kind.name: {
            field.target.id: " ".join(str(below.value.value).split())
            for field, below in itertools.pairwise(kind.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        }
        for kind in ast.parse(inspect.getsource(sys.modules[module])).body
        if isinstance(kind, ast.ClassDef)
    }


def describe(kind: type) -> None:
    """Let the string below each field of a class be its description. Call this before pydantic
    reads the class: its own ``use_attribute_docstrings`` forgets those of inherited fields."""
    own = kind.__annotations__
    for name, text in _sentences(kind.__module__).get(kind.__name__, {}).items():
        own[name] = Annotated[own[name], Field(description=text)]


class Described:
    """Models whose fields are described by the strings below them, which are read only when a JSON
    schema is made: steps are loaded at the start of every run."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for kind in cls.__mro__:
            if issubclass(kind, Described):
                for name, text in _sentences(kind.__module__).get(kind.__name__, {}).items():
                    if name in fields:
                        fields[name].setdefault("description", text)
        return schema


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**options: Any) -> Any:
        """Decorate a dataclass of settings. A ``UsageError`` names the first setting that is
        wrong."""

        def checked(kind: type) -> type:
            describe(kind)
            kind = pydantic.dataclasses.dataclass(kind, config=_STRICT, **options)
            build = kind.__init__

            def __init__(self: Any, *args: Any, **values: Any) -> None:
                tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
                try:
                    build(self, *args, **tuples)
                except ValidationError as error:
                    raise UsageError(problem(error, kind=kind)) from None

            kind.__init__ = __init__
            return kind

        return checked


# Parts of an error's location that are types, not names: `int`, `Task`, `literal['auto']`.
_TYPE = re.compile(r"int|float|bool|str|dict|list|path|[A-Z]\w*|.*\W.*")
_LONGEST = 200  # characters of a value in a message
_EXPECTED = {
    **{"int": "a whole number", "float": "a number", "bool": "true or false", "string": "a string"},
    **{"tuple": "a list", "dict": "an object", "dataclass": "an object of settings"},
}


def problem(error: ValidationError, named: Callable[[str], str] = str, kind: Any = None) -> str:
    """Return a line with the first wrong setting, its value and what to give instead. ``named``
    turns the name of a setting into the form that the user writes. For an unknown name, a similar
    name in the class ``kind`` is suggested."""
    first, *others = error.errors()
    place = _path_of(first)
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    name = named("".join(parts).removeprefix("."))
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        names = dotted_names(kind, lists=True) if kind else []
        return f"unknown setting {name!r}{_suggestion(name, names)}"
    if first["type"].startswith("missing"):
        return f"{name} is missing"
    if first["type"] == "value_error":
        return ": ".join(filter(None, [name, str(first["ctx"]["error"])]))
    value = first["input"]
    shown = repr(value) if isinstance(value, str) else str(value)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    state = "has no value" if value is None else f"is {shown}"
    choices = [first, *(other for other in others if _path_of(other) == place)]
    return f"{name} {state}: {', or '.join(dict.fromkeys(map(_advice, choices)))}"


def _path_of(error: Any) -> list[str | int]:
    return [part for part in error["loc"] if not _TYPE.fullmatch(str(part))]


def _advice(error: Any) -> str:
    limits = {name: _whole(limit) for name, limit in error.get("ctx", {}).items()}
    match error["type"]:
        case "greater_than_equal":
            return f"give {limits['ge']} or more"
        case "greater_than":
            return f"give more than {limits['gt']}"
        case "less_than_equal":
            return f"give {limits['le']} or less"
        case "less_than":
            return f"give less than {limits['lt']}"
        case "literal_error":
            return f"choose one of {limits['expected'].replace(' or ', ', ').replace(chr(39), '')}"
        case "string_pattern_mismatch":
            return f"it must be of the form {limits['pattern']}"
        case "too_short":
            return f"give {limits['min_length']} or more entries"
        case "finite_number":
            return "give a finite number"
    expected = _EXPECTED.get(error["type"].partition("_")[0])
    return f"give {expected}" if expected else str(error["msg"]).removeprefix("Input ")


def _whole(limit: Any) -> Any:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


class ByKind:
    """The annotation of a field that holds one of several dataclasses of settings. The key ``kind``
    in the field's value selects the dataclass; without this key, the first one is used. A string as
    value is short for {"kind": string}."""

    def __get_pydantic_core_schema__(self, union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members, name = members_of(union), str(handler.field_name)

        def chosen(value: Any) -> Any:
            if isinstance(value, str):
                value = {"kind": value}
            if not isinstance(value, dict):
                return value
            kind = _member(members, value, name)
            return kind.__pydantic_validator__.validate_json(json.dumps(value))

        return core_schema.no_info_before_validator_function(chosen, handler(union))


def shared(kind: Any, name: str) -> Any:
    """Return a copy of a dataclass's field ``name``, to use in another dataclass."""
    return copy(kind.__pydantic_fields__[name])


def refuse_if(condition: bool, message: str) -> None:
    """Raise ``UsageError`` with the message if the condition holds."""
    if condition:
        raise UsageError(message)


def refuse_any(problems: Iterable[str]) -> None:
    """Raise ``UsageError`` with the first of the problems, if there is one."""
    for problem in problems:
        raise UsageError(problem)


def to_dict(config: Any) -> dict[str, Any]:
    """Return the settings as JSON values: tuples become lists."""
    return dict(json.loads(json.dumps(dataclasses.asdict(config))))


def from_dict(kind: type[Config], values: Any, where: str) -> Config:
    """Build settings from parsed JSON that anyone may have written. Raises ``UsageError``, which
    begins with ``where`` and names an unknown, missing or mistyped key."""
    refuse_if(not isinstance(values, dict), f"{where}: give an object of settings")
    try:
        settings: Config = kind.__pydantic_validator__.validate_json(json.dumps(values))  # type: ignore[attr-defined]
    except ValidationError as error:
        raise UsageError(f"{where}: {problem(error, kind=kind)}") from None
    return settings


def members_of(kind: Any, *, lists: bool = False) -> tuple[Any, ...]:
    """Return the dataclasses that a field of type ``kind`` may hold. With ``lists``, include those
    that a list in the field may hold."""
    inside = () if typing.get_origin(kind) is tuple and not lists else typing.get_args(kind)
    return tuple(member for member in (kind, *inside) if dataclasses.is_dataclass(member))


def kinds_of(member: Any) -> tuple[str, ...]:
    """Return the values of the setting ``kind`` that select the dataclass ``member``: its class
    attribute ``kinds``. If the dataclass has no ``kinds``, return the values that the type of its
    field ``kind`` allows, or () if there is no such field either. In a class with ``kinds``, the
    method ``of_kind`` returns the dataclass to use for a value."""
    own: tuple[str, ...] = typing.get_args(_hints(member).get("kind"))
    kinds: tuple[str, ...] = vars(member).get("kinds", own)
    return kinds


def _is_kind(member: Any, tag: Any) -> bool:
    names = getattr(member, "names", None)
    return tag in kinds_of(member) or (names is not None and isinstance(tag, str) and names(tag))


def _member(members: tuple[Any, ...], value: Any, name: str) -> Any:
    tag = value.get("kind") if isinstance(value, dict) else None
    for member in members if tag is not None else ():
        if _is_kind(member, tag):
            return member.of_kind(tag) if "kinds" in vars(member) else member
    if len(members) == 1 or tag is None:
        return members[0].of_kind(tag) if "kinds" in vars(members[0]) else members[0]
    choices = ", ".join(kind for member in members for kind in kinds_of(member))
    choices += ", FILE.py:CLASS" if any(hasattr(member, "names") for member in members) else ""
    raise UsageError(f"{name}.kind is {tag!r}: choose one of {choices}")


def change(config: Config, changes: dict[str, Any], where: str) -> Config:
    """Return the settings with other values at dotted names, as in ``{"attention.window": 64}`` or
    ``{"attention": {"window": 64}}``. If a field holds one of several dataclasses, a string as the
    field's value is the new ``kind``, and settings that the new kind lacks are dropped. The result
    is checked after all changes. Raises ``LlmcurateError``, which begins with ``where``."""
    values = to_dict(config)
    named = flatten(changes)
    kinds_first = sorted(named, key=lambda name: (not name.endswith("kind"), name.count(".")))
    for name in kinds_first:
        _set_value(type(config), values, name.split("."), named[name], (where, name))
    return from_dict(type(config), values, where)


def unflatten(values: dict[str, Any]) -> dict[str, Any]:
    """Turn dotted names into nested objects: {"a.b": 1} becomes {"a": {"b": 1}}. A string given for
    ``a`` itself becomes a ``kind``: {"a": "x", "a.b": 1} becomes {"a": {"kind": "x", "b": 1}}. If
    both ``a`` (as None) and "a.b" are given, the later one replaces the other: {"a.b": 1, "a":
    None} becomes {"a": None}."""
    nested: dict[str, Any] = {}
    order = {name: number for number, name in enumerate(values)}
    for name in sorted(values, key=lambda name: name.count(".")):
        *above, last = name.split(".")
        parents = (".".join(above[:depth]) for depth in range(1, len(above) + 1))
        if any(values.get(p, "") is None and order[p] > order[name] for p in parents):
            continue
        inner = nested
        for part in above:
            given = inner.setdefault(part, {})
            if isinstance(given, str):
                inner[part] = {"kind": given}
            elif given is None:
                inner[part] = {}
            inner = inner[part]
        inner[last] = values[name]
    return nested


def flatten(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Turn nested objects into dotted names. An empty object stays a value."""
    parts = (
        flatten(value, f"{above}{name}.")
        if isinstance(value, dict) and value
        else {above + name: value}
        for name, value in values.items()
    )
    return {dotted: value for part in parts for dotted, value in part.items()}


def _set_value(
    kind: Any, values: Any, names: list[str], value: Any, whole: tuple[str, str]
) -> None:
    name, *further = names
    if name not in {field.name for field in dataclasses.fields(kind)}:
        if (
            hasattr(kind, "rest") and not further
        ):  # only a class in the user's file knows its settings
            values[kind.rest] = {**values.get(kind.rest, {}), name: value}
            return
        raise _unknown(*whole, type_of=kind, last=names)
    members = members_of(_hints(kind)[name])
    if not further and not (members and isinstance(value, str)):
        values[name] = value
        return
    if not members:
        raise UsageError(f"{whole[0]}: {whole[1]}: {name} has no settings below it")
    inner = values.get(name) or {}
    chosen = further or ["kind"]
    if chosen == ["kind"] and isinstance(value, str):
        name_of_kind = ": ".join([whole[0], whole[1].removesuffix(".kind")])
        new_type = _member(members, {"kind": value}, name_of_kind)
        same = inner.get("kind") in kinds_of(new_type)
        common = {field.name for field in dataclasses.fields(new_type)}
        kept = inner if same else {key: inner[key] for key in inner if key in common}
        named = new_type.named(value) if hasattr(new_type, "named") else {"kind": value}
        inner = {**kept, **named}
    else:
        _set_value(_member(members, inner, ": ".join(whole)), inner, chosen, value, whole)
    values[name] = inner


def _unknown(where: str, name: str, *, type_of: Any, last: list[str]) -> LlmcurateError:
    above = name[: len(name) - len(".".join(last))]
    hint = _suggestion(name, [above + setting for setting in dotted_names(type_of)])
    return UsageError(f"{where}: unknown setting {name!r}{hint}")


def _suggestion(name: str, names: list[str]) -> str:
    ends = [setting for setting in names if setting.split(".")[-1] == name.split(".")[-1]]
    close = ends or difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


@functools.cache
def dotted_names(kind: Any, *, lists: bool = False) -> list[str]:
    """Return the dotted names of all settings of a dataclass and of the dataclasses in its fields.
    With ``lists``, include the settings of dataclasses in lists."""
    names, hints = [], _hints(kind)
    for name in (field.name for field in dataclasses.fields(kind)):
        names.append(name)
        for member in members_of(hints[name], lists=lists):
            for own in member.all_kinds() if "kinds" in vars(member) else (member,):
                names += [f"{name}.{inner}" for inner in dotted_names(own, lists=lists)]
    return list(dict.fromkeys(names))
