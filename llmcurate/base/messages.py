"""Messages between processes: frozen dataclasses that are written and read as JSON."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter

M = TypeVar("M", bound="Message")
_adapter: Any = functools.cache(TypeAdapter)  # of a class, which takes a while to make


@dataclass(frozen=True)
class Message:
    """The base of messages. Fields are of JSON's types, or paths, tuples, dictionaries by name and
    other dataclasses; modules import the types of their fields when they are loaded."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    def to_json(self) -> bytes:
        """Return one line of JSON, without its end. NaN and infinities are written as Python
        writes them."""
        line: bytes = _adapter(type(self)).dump_json(self)
        return line

    @classmethod
    def from_json(cls: type[M], line: bytes | str) -> M:
        """Return the message that `to_json` wrote.

        Raises:
            pydantic.ValidationError: a field is missing, or of another type.
        """
        message: M = _adapter(cls).validate_json(line)
        return message
