"""The keys of a config.json that anyone may have written, read by type."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from typing import Any

from llmcurate.base.errors import LlmcurateError, UsageError

_REQUIRED = object()


class Settings:
    """Typed look-ups that raise ``LlmcurateError`` naming file and key. A key that is null is
    absent; ``aliases`` name the same setting.
    """

    def __init__(self, values: Mapping[str, Any], where: str, aliases: Mapping[str, str]) -> None:
        self._values, self.where, self._aliases = values, where, aliases

    @property
    def names(self) -> list[str]:
        """The keys that are there."""
        return list(self._values)

    def refusal(self, name: str, value: Any, why: str) -> LlmcurateError:
        shown = reprlib.repr(value)
        return UsageError(f"{self.where}: {name} is {shown}: {why}")

    def whole(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, default)
        plain = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
        if value is not default and not plain:
            raise self.refusal(name, value, "expected a whole number")
        return value

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        value = self._get(name, default)
        if not _is_number(value):
            raise self.refusal(name, value, "expected a number")
        return float(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self._get(name, _REQUIRED)
        if not isinstance(value, list) or not all(_is_number(item) and item > 0 for item in value):
            raise self.refusal(name, value, "expected a list of numbers over 0")
        return tuple(float(item) for item in value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.refusal(name, value, "expected true or false")
        return value

    def word(self, name: str, default: Any = _REQUIRED) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self.refusal(name, value, "expected a word")
        return value

    def words(self, name: str, between: str | None = None) -> list[str] | None:
        """A list of words, or with ``between`` one word of them with that between them."""
        value = self._get(name, None)
        if between is not None and isinstance(value, str):
            return [word.strip() for word in value.split(between)]
        if value is not None and not (
            isinstance(value, list) and all(isinstance(item, str) for item in value)
        ):
            raise self.refusal(name, value, "expected a list of words")
        return value

    def wholes(self, name: str) -> list[int]:
        """A list of whole numbers; empty where it is absent."""
        value = self._get(name, [])
        plain = isinstance(value, list) and all(type(item) is int for item in value)
        if not plain:
            raise self.refusal(name, value, "expected a list of whole numbers")
        return list(value)

    def one_of(self, name: str, choices: Mapping[str, str], default: Any = _REQUIRED) -> str:
        """Our word for theirs."""
        value = self.word(name, default)
        if value not in choices:
            raise self.refusal(name, value, f"known are {', '.join(choices)}")
        return choices[value]

    def sub(self, name: str) -> Settings | None:
        """An object of settings, None where it is absent or empty."""
        value = self._get(name, None)
        if value is not None and not isinstance(value, dict):
            raise self.refusal(name, value, "expected an object")
        return Settings(value, f"{self.where}: {name}", {}) if value else None

    def expect(self, name: str, expected: Any, default: Any) -> None:
        """Refuse a setting that our models have no counterpart for."""
        value = self._get(name, default)
        if value != expected:
            raise self.refusal(name, value, f"our models know {expected!r} alone")

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is None and name in self._aliases:
            value = self._values.get(self._aliases[name])
        if value is not None:
            return value
        if default is _REQUIRED:
            raise UsageError(f"{self.where}: {name} is missing")
        return default


def _is_number(value: Any) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and -sys.float_info.max <= value <= sys.float_info.max
