"""Messages between processes: frozen dataclasses that are written and read as JSON."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

M = TypeVar("M", bound="Message")
T = TypeVar("T")


@dataclass(frozen=True)
class Message:
    """The base of messages. Fields are of JSON's types, or paths, tuples, dictionaries by name and
    other dataclasses; modules import the types of their fields when they are loaded."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"ser_json_inf_nan": "constants"}

    def to_json(self) -> bytes:
        """Return one line of JSON, without its end. NaN and infinities are written as Python
        writes them."""
        adapter = _adapter_of(type(self))
        try:
            line: bytes = adapter.dump_json(self)
        except ValueError:  # names of files may be no UTF-8
            line = json.dumps(adapter.dump_python(self, mode="json")).encode()
        return line

    @classmethod
    def from_json(cls: type[M], line: bytes | str) -> M:
        """Return the message that `to_json` wrote.

        Raises:
            pydantic.ValidationError: a field is missing, or of another type.
        """
        adapter, text = _adapter_of(cls), line if isinstance(line, str) else line.decode()
        if "\\ud" in text:  # half a character, of a name that is no UTF-8
            message: M = adapter.validate_python(json.loads(text))
        else:
            message = adapter.validate_json(text)
        return message


@dataclass(frozen=True)
class Task(Message):
    """The base of tasks for an engine's workers. part: the number of this one among them."""

    part: int


def encode(value: object) -> bytes:
    """Return the JSON of a message, or of another value that JSON holds."""
    return value.to_json() if isinstance(value, Message) else json.dumps(value).encode()


def decode(kind: type[T], line: bytes | str) -> T:
    """Return the message of that class, or the value of another type, that `encode` wrote."""
    if isinstance(kind, type) and issubclass(kind, Message):
        return cast(T, kind.from_json(line))
    return cast(T, json.loads(line))


def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_adapter_of: Any = functools.cache(_adapter)  # which takes a while to make
