"""The metadata of a GGUF file, read and written; tensors are neither.

Format: docs/gguf.md of ggml-org/ggml, version 3, little-endian: magic, version, number of tensors,
number of keys, then key, type and value of each. Versions 2 and 3 differ in byte order only.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Any

_MAGIC = b"GGUF"
# Numbers of gguf_metadata_value_type and how they are packed.
_PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U8, U32, I32, F32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9
_MOST_KEYS = 1 << 16
_MOST_ELEMENTS = 1 << 27
_ALIGNMENT = 32


@dataclass(frozen=True)
class Typed:
    """A value to write and its type; `of`: that of an array's elements."""

    value: Any
    kind: int
    of: int = 0


class _Reader:
    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError("it is cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def plain(self, form: str) -> Any:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(form)))
        return value

    def string(self) -> str:
        raw = self.take(self.plain("Q"))
        # Tokens are bytes to some writers; what is no text is kept apart from any that is.
        return raw.decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Any:
        if kind in _PLAIN:
            return self.plain(_PLAIN[kind])
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise ValueError(f"a value of type {kind}")
        of, count = self.plain("I"), self.plain("Q")
        if count > _MOST_ELEMENTS or of == ARRAY:
            raise ValueError("an array too long, or of arrays")
        if of in _PLAIN:
            form = f"<{count}{_PLAIN[of]}"
            return list(struct.unpack(form, self.take(struct.calcsize(form))))
        return [self.value(of) for _ in range(count)]


def read_metadata(data: bytes | mmap.mmap) -> dict[str, Any]:
    """Key to value of a file's bytes; ValueError for what is no GGUF file of version 2 or 3."""
    if data[:4] != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    reader = _Reader(data)
    reader.take(4)
    version = reader.plain("I")
    if version not in (2, 3):
        raise ValueError(f"version {version}; 2 and 3 are read, little-endian")
    reader.plain("Q")
    count = reader.plain("Q")
    if count > _MOST_KEYS:
        raise ValueError(f"{count:,} keys")
    found: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string()
        found[key] = reader.value(reader.plain("I"))
    return found


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _packed(kind: int, value: Any, of: int) -> bytes:
    if kind == STRING:
        return _string(value)
    if kind == ARRAY:
        head = struct.pack("<IQ", of, len(value))
        if of == STRING:
            return head + b"".join(map(_string, value))
        return head + struct.pack(f"<{len(value)}{_PLAIN[of]}", *value)
    return struct.pack(f"<{_PLAIN[kind]}", value)


def write_metadata(values: dict[str, Typed]) -> bytes:
    """A file's bytes: no tensors, the given keys in their order."""
    out = [_MAGIC, struct.pack("<IQQ", 3, 0, len(values))]
    for key, typed in values.items():
        out += [_string(key), struct.pack("<I", typed.kind)]
        out.append(_packed(typed.kind, typed.value, typed.of))
    data = b"".join(out)
    return data + b"\0" * (-len(data) % _ALIGNMENT)
