"""Frozen dataclasses of settings, checked, and read from JSON that anyone may have written."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import typing
from typing import Any, TypeVar

from train.errors import TrainError

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a setting means, its limits and its choices: the annotation of its field.

    ``ge``, ``gt``, ``le``, ``lt``: the number is at least, above, at most, below this one. None,
    where the field allows it, has no limits.
    """

    description: str
    _: dataclasses.KW_ONLY
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[str, ...] = ()

    def refusal(self, value: Any) -> str | None:
        """What to give instead of a value that is outside the limits."""
        if self.choices:
            return None if value in self.choices else f"choose one of {', '.join(self.choices)}"
        if not isinstance(value, (int, float)) or isinstance(value, bool) or self._holds(value):
            return None
        low = f"over {self.gt}" if self.ge is None else f"{self.ge} or more"
        if self.le is not None:
            return f"it lies between {self.ge} and {self.le}"
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


def check(config: Any, where: str = "") -> None:
    """Raise ``TrainError`` naming the first setting that is outside its limits."""
    kind: Any = type(config)
    for name, setting in settings_of(kind).items():
        value = getattr(config, name)
        if value is not None and (refused := setting.refusal(value)):
            shown = repr(value) if isinstance(value, str) else value
            raise TrainError(f"{where}{name} is {shown}: {refused}", exit_code=2)


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
    (``tuple[int, ...]``), or one of these or None. Raises ``TrainError`` naming ``where`` and the
    key for unknown, missing or mistyped values.
    """
    if not isinstance(values, dict):
        raise TrainError(f"{where}: expected an object of settings")
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(str(name), sorted(names), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TrainError(f"{where}: unknown setting {name!r}{hint}")
    parsed = {name: _value(hints[name], value, where, name) for name, value in values.items()}
    try:
        return kind(**parsed)
    except TypeError as error:
        raise TrainError(f"{where}: {error}") from error


_PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
    type(None): (type(None),),
}


def _value(kind: Any, value: Any, where: str, name: str) -> Any:
    """``value``, as JSON gives it, as the type of a field."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_value(inner[0], item, where, name) for item in value)
    elif inner:  # a union: at most one of its members is not plain
        plain = [plain_kind for plain_kind in inner if plain_kind in _PLAIN]
        if any(_is(plain_kind, value) for plain_kind in plain):
            return value
        if len(plain) < len(inner):
            return _value(
                next(plain_kind for plain_kind in inner if plain_kind not in _PLAIN),
                value,
                where,
                name,
            )
    elif dataclasses.is_dataclass(kind):
        return from_dict(typing.cast(type, kind), value, f"{where}: {name}")
    elif _is(kind, value):
        return value
    shown = kind.__name__ if isinstance(kind, type) else str(kind)
    raise TrainError(f"{where}: {name} is {value!r}, expected {shown}")


def _is(plain: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return plain is bool
    return isinstance(value, _PLAIN[plain])
