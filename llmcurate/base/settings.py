"""Frozen dataclasses of settings, checked, and read from JSON that anyone may have written."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import typing
from typing import Any, TypeVar

from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError

Config = TypeVar("Config")
_hints: Any = functools.cache(typing.get_type_hints)  # of a dataclass, which take a while


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a setting means, its limits and its choices: the annotation of its field.

    ``ge``, ``gt``, ``le``, ``lt``: the number is at least, above, at most, below this one. None,
    where the field allows it, has no limits. ``form``: a pattern that all of a text matches.
    """

    description: str
    _: dataclasses.KW_ONLY
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[str, ...] = ()
    form: str = ""

    def refusal(self, value: Any) -> str | None:
        """What to give instead of a value that is outside the limits."""
        if self.choices:
            return None if value in self.choices else f"choose one of {', '.join(self.choices)}"
        if self.form:
            return None if re.fullmatch(self.form, value) else f"it must be of the form {self.form}"
        if not isinstance(value, (int, float)) or isinstance(value, bool) or self._holds(value):
            return None
        low = f"over {self.gt}" if self.ge is None else f"{self.ge} or more"
        if self.le is not None:
            return (
                f"give {low}, {self.le} or less"
                if self.ge is None
                else f"it lies between {self.ge} and {self.le}"
            )
        if self.lt is not None:
            return f"give {low}, below {self.lt}"
        return f"it must be {low} and finite" if self.ge is None else f"give {low}"

    def _holds(self, value: float) -> bool:
        return (
            value < math.inf  # false for a NaN too
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


@functools.cache
def settings_of(kind: type) -> dict[str, Setting]:
    """The settings of a dataclass by the names of their fields."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        field.name: note
        for field in dataclasses.fields(kind)
        for note in getattr(hints[field.name], "__metadata__", ())
        if isinstance(note, Setting)
    }


def check(config: Any, where: str = "", *, dash: str = "_") -> None:
    """Raise ``UsageError`` naming the first setting that is outside its limits, with ``dash`` in
    place of underscores.
    """
    kind: Any = type(config)
    for name, setting in settings_of(kind).items():
        value = getattr(config, name)
        if value is not None and (refused := setting.refusal(value)):
            shown = repr(value) if isinstance(value, str) else value
            raise UsageError(f"{where}{name.replace('_', dash)} is {shown}: {refused}")


def either(names: tuple[str, ...]) -> str:
    """The names in a row with `or` before the last one."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def refuse(condition: bool, message: str) -> None:
    """Raise ``LlmcurateError`` where the condition holds."""
    if condition:
        raise UsageError(message)


def kind_of(name: str, description: str) -> Any:
    """The setting ``kind`` of a dataclass among several."""
    return Setting(description, choices=(name,))


def to_dict(config: Any) -> dict[str, Any]:
    """As JSON has it: tuples are lists."""
    return {name: _listed(value) for name, value in dataclasses.asdict(config).items()}


def _listed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {name: _listed(item) for name, item in value.items()}
    return value


def from_dict(kind: type[Config], values: Any, where: str) -> Config:
    """Build a config from parsed JSON that may have been written by anyone.

    Fields are int, float, bool, str, other such dataclasses, tuples of one of these
    (``tuple[int, ...]``) or dicts of them by name, or one of these or None. Of a choice between
    dataclasses the value of ``kind`` decides, or a word, which is that kind; else the first is
    meant. Raises ``LlmcurateError`` naming where and the key of unknown, missing or mistyped
    values.
    """
    if not isinstance(values, dict):
        raise RunFailed(f"{where}: expected an object of settings")
    hints = _hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(str(name), sorted(names), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise RunFailed(f"{where}: unknown setting {name!r}{hint}")
    parsed = {name: _value(hints[name], value, where, name) for name, value in values.items()}
    try:
        return kind(**parsed)
    except TypeError as error:
        raise RunFailed(f"{where}: {error}") from error


_PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
    type(None): (type(None),),
}


def _value(kind: Any, value: Any, where: str, name: str) -> Any:
    """``value``, as JSON gives it, as the type of a field."""
    inner, members = typing.get_args(kind), members_of(kind)
    if typing.get_origin(kind) is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_value(inner[0], item, where, name) for item in value)
    elif typing.get_origin(kind) is dict:
        if isinstance(value, dict):
            return {key: _value(inner[1], item, where, name) for key, item in value.items()}
    elif any(_is(plain_kind, value) for plain_kind in inner if plain_kind in _PLAIN):
        return value
    elif members:
        if isinstance(value, str) and any(kinds_of(member) for member in members):
            value = {"kind": value}
        return from_dict(_member(members, value, where, name), value, f"{where}: {name}")
    elif further := [choice for choice in inner if choice not in _PLAIN]:
        return _value(further[0], value, where, name)
    elif kind in _PLAIN and _is(kind, value):
        return value
    shown = kind.__name__ if isinstance(kind, type) else str(kind)
    raise RunFailed(f"{where}: {name} is {value!r}, expected {shown}")


def _is(plain: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return plain is bool
    return isinstance(value, _PLAIN[plain])


def members_of(kind: Any) -> tuple[Any, ...]:
    """The dataclasses that a field of this type may hold."""
    inside = () if typing.get_origin(kind) is tuple else typing.get_args(kind)
    return tuple(member for member in (kind, *inside) if dataclasses.is_dataclass(member))


def kinds_of(member: Any) -> tuple[str, ...]:
    """The values of ``kind`` that mean this dataclass; none where it has no such setting, or where
    a file is named in its place.
    """
    setting = settings_of(member).get("kind")
    return setting.choices if setting else ()


def _is_kind(member: Any, tag: Any) -> bool:
    """Whether a value of ``kind`` means this dataclass: one of its words, or what it ``names``."""
    names = getattr(member, "names", None)
    return tag in kinds_of(member) or (names is not None and isinstance(tag, str) and names(tag))


def _member(members: tuple[Any, ...], value: Any, where: str, name: str) -> Any:
    """The dataclass that a value's ``kind`` names."""
    tag = value.get("kind") if isinstance(value, dict) else None
    if len(members) == 1 or tag is None:
        return members[0]
    for member in members:
        if _is_kind(member, tag):
            return member
    choices = ", ".join(kind for member in members for kind in kinds_of(member))
    choices += ", FILE.py:CLASS" if any(hasattr(member, "names") for member in members) else ""
    raise UsageError(f"{where}: {name}.kind is {tag!r}: choose one of {choices}")


def change(config: Config, changes: dict[str, Any], where: str) -> Config:
    """The config with other values at dotted names: ``{"attention.window": 64}``. A value may be an
    object of such names; a word where a choice of dataclasses stands is its ``kind``, which sets
    what only another kind has back. All changes count together. Raises ``LlmcurateError``.
    """
    values = to_dict(config)
    named = flat(changes)
    for name in sorted(named, key=_kinds_first):
        _put(type(config), values, name.split("."), named[name], (where, name))
    return from_dict(type(config), values, where)


def _kinds_first(name: str) -> tuple[bool, int]:
    """A kind, also where it stands for what it is a kind of, comes before what belongs to it."""
    return not name.endswith("kind"), name.count(".")


def unflat(values: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as objects in objects; a word beside names below it is their ``kind``."""
    nested: dict[str, Any] = {}
    for name in sorted(values, key=lambda name: name.count(".")):
        *above, last = name.split(".")
        inner = nested
        for part in above:
            if isinstance(inner.setdefault(part, {}), str):
                inner[part] = {"kind": inner[part]}
            inner = inner[part]
        inner[last] = values[name]
    return nested


def flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Objects in objects as dotted names."""
    below: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            below |= flat(value, f"{above}{name}.")
        else:
            below[f"{above}{name}"] = value
    return below


def _put(kind: Any, values: Any, names: list[str], value: Any, whole: tuple[str, str]) -> None:
    """Set one value in the object of a dataclass, in place."""
    name, *further = names
    if name not in {field.name for field in dataclasses.fields(kind)}:
        if hasattr(kind, "rest") and not further:  # of a class in a file, which alone knows it
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
        new_type = _member(members, {"kind": value}, whole[0], whole[1].removesuffix(".kind"))
        same = inner.get("kind") in kinds_of(new_type)
        common = {field.name for field in dataclasses.fields(new_type)}
        kept = inner if same else {key: inner[key] for key in inner if key in common}
        named = new_type.named(value) if hasattr(new_type, "named") else {"kind": value}
        inner = {**kept, **named}
    else:
        _put(_member(members, inner, *whole), inner, chosen, value, whole)
    values[name] = inner


def _unknown(where: str, name: str, *, type_of: Any, last: list[str]) -> LlmcurateError:
    """What to say of a name that no setting has: the nearest, or one that ends so."""
    above = name[: len(name) - len(".".join(last))]
    names = [above + setting for setting in dotted_names(type_of)]
    ends = [setting for setting in names if setting.split(".")[-1] == last[-1]]
    close = ends or difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return UsageError(f"{where}: unknown setting {name!r}{hint}")


@functools.cache
def dotted_names(kind: Any) -> list[str]:
    """The names of all settings of a dataclass and of those in it, of every kind."""
    names, hints = [], _hints(kind)
    for name in (field.name for field in dataclasses.fields(kind)):
        names.append(name)
        for member in members_of(hints[name]):
            names += [f"{name}.{inner}" for inner in dotted_names(member)]
    return list(dict.fromkeys(names))
