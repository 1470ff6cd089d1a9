"""Frozen dataclasses of settings, checked, and read from JSON that anyone may have written."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

from train.errors import TrainError

Config = TypeVar("Config")


def positive(config: Any, *names: str) -> None:
    """Raise ``TrainError`` naming the first of these fields that is not over 0 and finite."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < math.inf:  # false for a NaN too
            raise TrainError(f"{name} is {value}: it must be over 0 and finite", exit_code=2)


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(kind: type[Config], values: Any, where: str) -> Config:
    """Build a config from parsed JSON that may have been written by anyone.

    Raises ``TrainError`` naming ``where`` and the key for unknown, missing or mistyped values.
    """
    if not isinstance(values, dict):
        raise TrainError(f"{where}: expected an object of settings")
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    types: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "str": (str,),
    }
    for name, value in values.items():
        if name not in fields:
            raise TrainError(f"{where}: unknown setting {name!r}")
        wanted = types[fields[name]]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise TrainError(f"{where}: {name} is {value!r}, expected {fields[name]}")
    try:
        return kind(**values)
    except TypeError as error:
        raise TrainError(f"{where}: {error}") from error
