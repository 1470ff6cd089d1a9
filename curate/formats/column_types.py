"""Types of carried columns (unknown input columns that go to the output): one type per column,
which holds the values of all files.

Files of one data set often differ: a struct has one field more, integers became floats.
`common_kind` finds the type that holds the values of two files, as pyarrow's `unify_schemas` and
DuckDB's `union_by_name` do: structs get the fields of both, integers become 64 bits wide, and times
get the finer unit. Values without a common type (a number and a string) become JSON text. In any
order of the files, the type is the same. A value that still does not fit its column (an integer
that no float equals, or a value added by a refresh) is a misfit, stored elsewhere.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pyarrow as pa

from curate.documents.documents import CORE, PAYLOAD
from curate.formats.columns import json_text

KINDS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "json": pa.string(),
}
_OF_UNITS = (*(pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration, pa.types.is_decimal),)


def kind_of_type(kind: pa.DataType) -> str | None:
    """Return the kind (as in KINDS) of a column of an Arrow type; None for Arrow's null type."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        return kind_of_type(kind.value_type)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return "int64"
    if pa.types.is_floating(kind):
        return "double"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if "_view" in str(kind) and (plain := _plain(kind)) != kind:  # Arrow cannot filter views
        return kind_of_type(plain)
    return f"arrow:{pa.schema([('c', kind)]).serialize().to_pybytes().hex()}"


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of columns of a kind."""
    if kind.startswith("arrow:"):
        buffer = pa.py_buffer(bytes.fromhex(kind[6:]))
        return pa.ipc.read_schema(buffer).field(0).type
    return KINDS[kind]


def schema(columns: dict[str, str]) -> list[tuple[str, pa.DataType]]:
    """Return (name, type) of all columns that readers give: standard ones, then `columns`."""
    return [*CORE, *PAYLOAD, *((name, arrow_type(kind)) for name, kind in columns.items())]


def common_kind(old: str | None, new: str | None) -> str | None:
    """Return the kind of column that holds values of both kinds; None if both are None."""
    if old is None or new is None or old == new:
        return old or new
    both = None if "json" in (old, new) else common_type(arrow_type(old), arrow_type(new))
    return "json" if both is None else kind_of_type(both)


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both types unchanged, or None if no type does."""
    a, b = _plain(a), _plain(b)
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _common_struct(a, b)
    if pa.types.is_list(a) and pa.types.is_list(b):
        value = common_type(a.value_type, b.value_type)
        return None if value is None else pa.list_(value)
    if pa.types.is_map(a) and pa.types.is_map(b):
        key = common_type(a.key_type, b.key_type)
        item = common_type(a.item_type, b.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if all(pa.types.is_floating(t) or t == pa.int64() for t in (a, b)):
        return pa.float64()
    if any(is_kind(a) and is_kind(b) for is_kind in _OF_UNITS):
        schemas = [pa.schema([("it", kind)]) for kind in (a, b)]
        with suppress(pa.ArrowTypeError, pa.ArrowInvalid):
            return pa.unify_schemas(schemas, promote_options="permissive").field("it").type
    return None


def _common_struct(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    fields: dict[str, pa.DataType | None] = {field.name: field.type for field in a}
    if len(fields) < a.num_fields or len({field.name for field in b}) < b.num_fields:
        return None
    for field in b:
        have = fields.get(field.name, pa.null())
        fields[field.name] = common_type(have, field.type)
    return None if None in fields.values() else pa.struct(sorted(fields.items()))


def _plain(kind: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_dictionary(kind):
        return _plain(kind.value_type)
    if getattr(kind, "extension_name", "") == "arrow.json":
        return pa.string()
    if is_.is_integer(kind) and kind != pa.uint64():
        return pa.int64()
    if is_.is_large_string(kind) or is_.is_string_view(kind):
        return pa.string()
    if is_.is_large_binary(kind) or is_.is_binary_view(kind) or is_.is_fixed_size_binary(kind):
        return pa.binary()
    if is_.is_timestamp(kind) and kind.tz:  # the same moments
        return pa.timestamp(kind.unit, "UTC")
    if is_.is_date64(kind):
        return pa.date32()
    if is_.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if is_.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


def cast_to(column: pa.ChunkedArray, want: pa.DataType) -> tuple[pa.ChunkedArray, list[int]]:
    """Return the column cast to a type, and the rows (in ascending order) whose values do not fit
    the type and are null in the result."""
    if column.type == want:
        return column, []
    both = common_type(column.type, want)
    if both is None:
        rows = [row for row, valid in enumerate(column.is_valid().to_pylist()) if valid]
        return pa.chunked_array([pa.nulls(len(column), want)]), rows

    def cast(part: pa.ChunkedArray) -> pa.ChunkedArray:
        out = part.cast(want)
        if both != _plain(want) and not out.cast(both).equals(part.cast(both)):
            raise pa.ArrowInvalid("the type is too narrow")
        return out

    misfits: list[int] = []
    parts: list[pa.Array] = []
    try:
        return cast(column), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        for row in range(len(column)):
            try:
                parts += cast(column.slice(row, 1)).chunks
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                parts.append(pa.nulls(1, want))
                misfits.append(row)
    return pa.chunked_array(parts, want), misfits


def json_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as JSON text; null and NaN become null."""
    if getattr(column.type, "extension_name", "") == "arrow.json":
        return column.cast(pa.string())
    values = map(json_value, column)
    return pa.array([None if v is None else json_text(v) for v in values], pa.string())


def json_value(value: pa.Scalar) -> Any:
    """Return the value in JSON's types: times as ISO 8601, bytes as hexadecimal digits, decimals
    and durations as text, maps as lists of keys and values, NaN as null."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return json_value(value.value)
    if pa.types.is_struct(kind):
        return {name: json_value(field) for name, field in value.items()}
    if pa.types.is_nested(kind):
        return [json_value(each) for each in value.values]
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return value.cast(pa.string()).as_py().replace(" ", "T")
    plain = value.as_py()
    if isinstance(plain, bytes):
        return plain.hex()
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else str(plain)
    return plain if isinstance(plain, (str, int, float)) else str(plain)
