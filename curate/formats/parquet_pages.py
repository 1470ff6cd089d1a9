"""Pages of parquet files: how much memory they take, by their headers, before they are read.

A page of a few bytes may unpack to gigabytes, and a value that stands once in a dictionary may
fill every row. Arrow unpacks a page of each column at once and knows no bound. A header is a struct
of Thrift's compact protocol (apache/parquet-format, src/main/thrift/parquet.thrift, PageHeader).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

_DICTIONARY = 2  # PageType.DICTIONARY_PAGE
_MOST_HEADER = 16 << 20  # as Arrow; statistics in it may hold long values
_MOST_DEPTH = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


class BadPages(ValueError):
    """Headers that cannot be believed."""


@dataclass(frozen=True)
class Chunk:
    """A column of a row group. name: up to a dot, as a choice of columns has it; memory: bytes that
    reading it takes beside the rows; row: bytes that a row has in the page where rows have most;
    repeated: bytes that any row may have, of a dictionary."""

    name: str
    memory: int
    row: float
    repeated: float


def chunks(file: BinaryIO, group: Any, most: int | None = None) -> list[Chunk]:
    """What the columns of a row group (pyarrow's metadata) take; most: pages that are looked at
    of each. BadPages where a header cannot be read."""
    columns = map(group.column, range(group.num_columns))
    try:
        return [_chunk(file, column, group.num_rows, most) for column in columns]
    except UnicodeDecodeError:
        raise BadPages("a column's name is no UTF-8") from None


def _chunk(file: BinaryIO, column: Any, rows: int, most: int | None) -> Chunk:
    at = column.data_page_offset
    if column.dictionary_page_offset:
        at = min(at, column.dictionary_page_offset)
    end = at + column.total_compressed_size
    largest = dictionary = stored = seen = looked = 0
    value = repeated = 0.0
    while at < end and seen < column.num_values and looked != most:
        kind, unpacked, packed, values, size = _header(file, at, column.path_in_schema)
        if packed != unpacked:  # compressed; Arrow aborts when asked for a codec that is none
            stored = max(stored, packed)
        largest = max(largest, unpacked)
        if kind == _DICTIONARY:
            dictionary = max(dictionary, unpacked)
            repeated = max(repeated, min(unpacked, _WIDTHS.get(column.physical_type, unpacked)))
        else:
            value = max(value, unpacked / max(1, values))
            seen += values
        at += size + packed
        looked += 1
    per_row = max(1.0, column.num_values / max(1, rows))
    name = column.path_in_schema.split(".")[0]
    # A page as it is stored, unpacked into a buffer for all of them, and a dictionary's values.
    memory = stored + largest + dictionary
    return Chunk(name, memory, value * per_row, repeated * per_row)


def _header(file: BinaryIO, at: int, column: str) -> tuple[int, int, int, int, int]:
    """(kind, bytes unpacked, bytes as stored, values, bytes of the header) of the page there."""
    problem = BadPages(f"column `{column}`: no page at byte {at}")
    if at < 0:
        raise problem
    size = 256
    while True:
        file.seek(at)
        data = file.read(size)
        try:
            fields, end = _struct(data, 0)
            break
        except IndexError:
            if len(data) < size or size >= _MOST_HEADER:
                raise problem from None
            size *= 16
        except ValueError:
            raise problem from None
    kind, unpacked, packed = (fields.get(k) for k in (1, 2, 3))
    about = fields.get(5) or fields.get(8) or {}
    values = about.get(1, 0) if isinstance(about, dict) else 0
    for number in (kind, unpacked, packed, values):
        if not isinstance(number, int) or number < 0:
            raise problem
    return kind, unpacked, packed, values, end  # type: ignore[return-value]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number too long")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """(the integers and structs in it by field, where it ends). IndexError: the data end first;
    ValueError: it is no header."""
    if depth > _MOST_DEPTH:
        raise ValueError("structs too deep")
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at] & 15:
        step = data[at] >> 4
        at += 1
        if step:
            number += step
        else:
            stated, at = _varint(data, at)
            number = stated >> 1 ^ -(stated & 1)
        fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """(an integer or a struct, None for what is of no use here; where it ends)."""
    if kind in (1, 2):  # the kind is the boolean
        return None, at
    if kind == 3:
        return None, at + 1
    if kind in (4, 5, 6):
        stated, at = _varint(data, at)
        return stated >> 1 ^ -(stated & 1), at
    if kind == 7:
        return None, at + 8
    if kind == 8:
        size, at = _varint(data, at)
        return None, at + size
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise ValueError("a list or map")  # none stands in a header
