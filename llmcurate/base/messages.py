"""Dataclasses as JSON: messages between processes, which are read again, and records of figures."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from pathlib import PurePath
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


OPTIONAL = {"optional": True}  # metadata of a field that JSON leaves out where it is absent
_PART = re.compile(r"(?:(\w+)=)?([\w.]+)(?:([?!])([\w.]*))?")


def json_values(record: Any) -> Any:
    """Return a record as JSON values.

    Of a dataclass these are its fields in their order, or what its `JSON` names: attributes,
    properties or methods, `settings=sets` under another name, `kept.lengths` under the last one.
    `ages?` is left out where it is absent (None, False or empty), `text?other` where the other is,
    `text!other` where the other is there. A `JSON` that is one string names what stands for the
    record. Numbers of arrays have six digits behind the point.
    """
    names = getattr(record, "JSON", None)
    if isinstance(names, str):
        return json_values(getattr(record, names))
    if names is None and is_dataclass(record):
        names = [each.name + "?" * ("optional" in each.metadata) for each in fields(record)]
    if names is not None:
        return dict(_named(record, names))
    if hasattr(record, "_asdict"):  # a named tuple
        return json_values(record._asdict())
    if isinstance(record, dict):
        return {name: json_values(value) for name, value in record.items()}
    if hasattr(record, "tolist"):  # an array
        return [round(v, 6) if isinstance(v, float) else v for v in record.tolist()]
    if isinstance(record, PurePath):
        return str(record)
    return [*map(json_values, record)] if isinstance(record, (list, tuple)) else record


def _named(record: object, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The parts of a record that JSON has."""
    for name in names:
        part = _PART.fullmatch(name)
        assert part is not None, name
        key, attribute, condition, other = part.groups()
        if condition is None or _is_there(record, other or attribute) == (condition == "?"):
            value = attrgetter(attribute)(record)
            yield (
                key or attribute.rpartition(".")[2],
                json_values(value() if callable(value) else value),
            )


def _is_there(record: object, attribute: str) -> bool:
    value = attrgetter(attribute)(record)
    is_empty = isinstance(value, (list, tuple, dict)) and not value
    return value is not None and value is not False and not is_empty
