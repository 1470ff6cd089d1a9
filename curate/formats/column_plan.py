"""The plan of unknown input columns: their types, fixed before any partition is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from curate.formats.columns import EXTRA, KNOWN, Columns, column_name, kind_of
from curate.formats.delimited import read_header
from curate.formats.jsonl import sample
from curate.formats.kinds import FORMATS
from curate.formats.parquet import read_schema
from llmcurate.base.disk.process import AT_ONCE, in_order
from llmcurate.base.errors import UsageError

MOST = 500  # columns planned from JSON keys; later keys go to `extra`
MOST_STORED = 10_000  # columns of tables: each takes 15 kB in a worker, however few its rows are


def _join(a: str | None, b: str | None) -> str | None:
    if a is None or b is None or a == b:
        return a or b
    return "double" if {a, b} == {"int64", "double"} else "json"


def _arrow_kind(kind: pa.DataType) -> str | None:
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        return _arrow_kind(kind.value_type)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return "int64"
    if pa.types.is_floating(kind):
        return "double"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    return f"arrow:{pa.schema([('c', kind)]).serialize().to_pybytes().hex()}"


def _same(old: str | None, new: str | None, path: str, column: str) -> str | None:
    """The kind that holds both; UsageError for nested or special types that differ."""
    special = any(k is not None and k.startswith("arrow:") for k in (old, new))
    if special and None not in (old, new) and old != new:
        raise UsageError(
            f"input {path}: column {column!r} has another type than in the files before it;"
            " convert one of them"
        )
    return _join(old, new)


def join_columns(before: dict[str, str], now: dict[str, str], path: str) -> dict[str, str]:
    """The columns of two inputs together; path: of the later one, for an error."""
    names = sorted({*before, *now})
    kinds = {n: _same(before.get(n), now.get(n), path, n) for n in names}
    return {name: kind or "string" for name, kind in kinds.items()}


def carried_columns(
    files: Sequence[Any],
    sample_lines: int,
    at_once: int = AT_ONCE,
    columns: Columns = Columns(),
) -> dict[str, str]:
    """name -> kind of every unknown column, over all files; `extra` where there are JSON lines or
    CSV."""
    kinds: dict[str, str | None] = {}
    json_lines = any(file.format == "csv" for file in files)
    schemas = in_order(partial(_schema, columns=columns), files, at_once)
    for file, schema in zip(files, schemas, strict=True):
        if schema is not None:
            for f in schema:
                if f.name in KNOWN:
                    continue
                name = column_name(f.name, f.type)
                kinds[name] = _same(kinds.get(name), _arrow_kind(f.type), file.path, f.name)
            if len(kinds) > MOST_STORED:
                raise UsageError(
                    f"input {file.path}: it makes {len(kinds):,} columns to carry along, and"
                    f" {MOST_STORED:,} are the most: write it without those that are not needed"
                )
        elif file.format == "jsonl":
            json_lines = True
            for record in sample(file.path, file.codec, sample_lines):
                for key, value in columns.record(record).items():
                    name = column_name(key)
                    if key not in KNOWN and (name in kinds or len(kinds) < MOST):
                        kinds[name] = _same(kinds.get(name), kind_of(value), file.path, key)
        else:
            for name, kind in getattr(FORMATS[file.format].reader, "COLUMNS", {}).items():
                kinds[name] = _same(kinds.get(name), kind, file.path, name)
    if json_lines:
        kinds[EXTRA] = "json"
    return {name: kind or "string" for name, kind in sorted(kinds.items())}


def _schema(file: Any, columns: Columns) -> pa.Schema | None:
    """That of a parquet file, and of CSV, whose columns are text."""
    if file.format == "csv":
        names = read_header(file.path, file.codec, columns)
        return pa.schema([(name, pa.string()) for name in names])
    return read_schema(file.path, columns) if file.format == "parquet" else None
