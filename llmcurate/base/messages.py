"""Dataclasses as JSON: messages between processes, and records such as run.json."""

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
    """The base class of messages: dataclasses that are sent or stored as JSON. Fields hold JSON
    types, paths, tuples, dictionaries with texts as keys, and dataclasses. Field types must be
    imported at run time, not for type checking alone."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"ser_json_inf_nan": "constants"}

    def to_json(self) -> bytes:
        """Return one line of JSON without a newline. It may hold NaN, Infinity and -Infinity."""
        adapter = _adapter_of(type(self))
        try:
            line: bytes = adapter.dump_json(self)
        except ValueError:  # a file name may not be valid UTF-8
            line = json.dumps(adapter.dump_python(self, mode="json")).encode()
        return line

    @classmethod
    def from_json(cls: type[M], line: bytes | str) -> M:
        """Return the message that `to_json` wrote.

        Raises:
            pydantic.ValidationError: a field is missing or has the wrong type.
        """
        adapter, text = _adapter_of(cls), line if isinstance(line, str) else line.decode()
        if "\\ud" in text:  # a lone surrogate: a file name that is not valid UTF-8
            message: M = adapter.validate_python(json.loads(text))
        else:
            message = adapter.validate_json(text)
        return message


@dataclass(frozen=True)
class Task(Message):
    """The base class of tasks for the workers of an engine."""

    part: int  # number of the task


def encode(value: object) -> bytes:
    """Return the JSON of a message or of any other JSON value."""
    return value.to_json() if isinstance(value, Message) else json.dumps(value).encode()


def decode(kind: type[T], line: bytes | str) -> T:
    """Return the message or other value of type `kind` that `encode` wrote."""
    if isinstance(kind, type) and issubclass(kind, Message):
        return cast(T, kind.from_json(line))
    return cast(T, json.loads(line))


def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_adapter_of: Any = functools.cache(_adapter)  # slow to build


OPTIONAL = {"optional": True}  # metadata: leave the field out of JSON if None, False or empty
_PART = re.compile(r"(?:(\w+)=)?([\w.]+)(?:([?!])([\w.]*))?")


def json_values(record: Any) -> Any:
    """Return a record as JSON values.

    A dataclass becomes an object of its fields, in order. If the class has an attribute `JSON`,
    this list names the object's entries instead. An entry is the name of an attribute, property or
    method, or is written in one of these ways:

        settings=sets   the value of `sets`, under the name `settings`
        kept.lengths    the attribute `lengths` of `kept`, under the name `lengths`
        ages?           `ages`, left out if `ages` is absent (None, False or empty)
        text?other      `text`, left out if `other` is absent
        text!other      `text`, left out if `other` is present

    If `JSON` is one string, the value of that attribute replaces the record. Floats in arrays are
    rounded to six decimal places.
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
    for name in names:
        part = _PART.fullmatch(name)
        assert part is not None, name
        key, attribute, condition, other = part.groups()
        if condition is None or _is_present(record, other or attribute) == (condition == "?"):
            value = attrgetter(attribute)(record)
            yield (
                key or attribute.rpartition(".")[2],
                json_values(value() if callable(value) else value),
            )


def _is_present(record: object, attribute: str) -> bool:
    value = attrgetter(attribute)(record)
    is_empty = isinstance(value, (list, tuple, dict)) and not value
    return value is not None and value is not False and not is_empty
