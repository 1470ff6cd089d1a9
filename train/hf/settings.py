"""The keys of a config.json that anyone may have written, read by type."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictStr, TypeAdapter, ValidationError

from llmcurate.base.errors import LlmcurateError, UsageError

_REQUIRED = object()
Whole = Annotated[int, Field(strict=True, gt=-(1 << 63), lt=1 << 63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_WHOLE, _WHOLES = TypeAdapter(Whole), TypeAdapter(list[Whole])
_NUMBER = TypeAdapter(Number)
_NUMBERS = TypeAdapter(list[Annotated[Number, Field(gt=0)]])
_FLAG, _OBJECT = TypeAdapter(StrictBool), TypeAdapter(dict[str, Any])
_WORD, _WORDS = TypeAdapter(StrictStr), TypeAdapter(list[StrictStr])


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
        return self._checked(name, default, _WHOLE, "a whole number")

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        return float(self._checked(name, default, _NUMBER, "a number"))

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self._checked(name, _REQUIRED, _NUMBERS, "a list of numbers over 0")
        return tuple(float(value) for value in values)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._checked(name, default, _FLAG, "true or false"))

    def word(self, name: str, default: Any = _REQUIRED) -> str:
        return str(self._checked(name, default, _WORD, "a word"))

    def words(self, name: str, between: str | None = None) -> list[str] | None:
        """A list of words, or with ``between`` one word of them with that between them."""
        value = self._get(name, None)
        if between is not None and isinstance(value, str):
            return [word.strip() for word in value.split(between)]
        words: list[str] | None = self._checked(name, None, _WORDS, "a list of words")
        return words

    def wholes(self, name: str) -> list[int]:
        """A list of whole numbers; empty where it is absent."""
        return list(self._checked(name, [], _WHOLES, "a list of whole numbers"))

    def one_of(self, name: str, choices: Mapping[str, str], default: Any = _REQUIRED) -> str:
        """Our word for theirs."""
        value = self.word(name, default)
        if value not in choices:
            raise self.refusal(name, value, f"known are {', '.join(choices)}")
        return choices[value]

    def sub(self, name: str) -> Settings | None:
        """An object of settings, None where it is absent or empty."""
        value = self._checked(name, None, _OBJECT, "an object")
        return Settings(value, f"{self.where}: {name}", {}) if value else None

    def expect(self, name: str, expected: Any, default: Any) -> None:
        """Refuse a setting that our models have no counterpart for."""
        value = self._get(name, default)
        if value != expected:
            raise self.refusal(name, value, f"our models know {expected!r} alone")

    def _checked(self, name: str, default: Any, kind: TypeAdapter[Any], expected: str) -> Any:
        """A value of a kind, or the default, whatever that is."""
        value = self._get(name, default)
        try:
            return value if value is default else kind.validate_python(value)
        except ValidationError:
            raise self.refusal(name, value, f"expected {expected}") from None

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is None and name in self._aliases:
            value = self._values.get(self._aliases[name])
        if value is not None:
            return value
        if default is _REQUIRED:
            raise UsageError(f"{self.where}: {name} is missing")
        return default
