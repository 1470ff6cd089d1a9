"""Protocol buffers as bytes: fields read one by one, and written.

The wire format of protobuf.dev/programming-guides/encoding, without a schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

NUMBER, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # wire types


class Malformed(ValueError):
    """The bytes are no message; says where they stop making sense."""


def fields(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field, wire type, value): an int, bytes, a float, or bytes for eight-byte values."""
    for field, wire, value, _ in places(raw):
        yield field, wire, value


def places(raw: bytes) -> Iterator[tuple[int, int, Any, int]]:
    """Fields as `fields` gives them, and where each of them ends."""
    place = 0
    while place < len(raw):
        tag, place = _read_varint(raw, place)
        wire = tag & 7
        value: Any
        if wire == NUMBER:
            value, place = _read_varint(raw, place)
        elif wire == BYTES:
            size, place = _read_varint(raw, place)
            value, place = raw[place : place + size], place + size
        elif wire == FOUR:
            value, place = raw[place : place + 4], place + 4
        elif wire == EIGHT:
            value, place = raw[place : place + 8], place + 8
        else:
            raise Malformed(f"a field of an unknown kind at byte {place}")
        if place > len(raw):
            raise Malformed("it ends within a field")
        if wire == FOUR:
            value = struct.unpack("<f", value)[0]
        yield tag >> 3, wire, value, place


def _read_varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(raw) and shift < 70:
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise Malformed(f"a number without an end at byte {place}")


def _varint(value: int) -> bytes:
    """Negative ones as 64 bits, as int32 of proto2 has them."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def signed(value: int) -> int:
    """An int32 of what was read for it."""
    return value - (1 << 64) if value >= 1 << 63 else value


def put(field: int, value: int | float | bytes) -> bytes:
    """A field's bytes: a number, a float of four bytes, or a string or message."""
    if isinstance(value, bytes):
        return _varint(field << 3 | BYTES) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(field << 3 | FOUR) + struct.pack("<f", value)
    return _varint(field << 3 | NUMBER) + _varint(value)
