"""Scores and edits in files of documents: one struct column, `attributes`.

A document has dozens of columns named `step.figure`. Files store them as fields of one struct:
`pack` makes the struct, and the functions here that read files return flat columns again. The
struct is recognized by its shape, because other programs drop metadata: it has a field `edits`, and
the names of all other fields have a dot."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.documents.edits import EDITS
from llmcurate.base.disk.database import paths_literal, quoted
from llmcurate.base.errors import UsageError

ATTRIBUTES = "attributes"
ROWS = 200  # per batch, when single rows are read
_STORED = {b"llmcurate": b"attribute"}  # metadata of a field that the file stores in the struct
Rows = Any  # pa.Table or pa.RecordBatch; functions return the type that they get


def is_packed(schema: pa.Schema) -> bool:
    """Return True if documents of this schema have their scores and edits in one struct column."""
    at = schema.get_field_index(ATTRIBUTES)
    kind = schema.field(at).type if at >= 0 else pa.null()
    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    return EDITS in names and all("." in name or name == EDITS for name in names)


def pack(rows: Rows, own: Container[str] = ()) -> Rows:
    """Return the rows with scores and edits packed into one struct column. Packed are the column
    `edits` and each column with a dot in its name, without those in `own` (input columns). The
    struct takes the place of the last packed column. Without `edits`, nothing is packed."""
    names = rows.schema.names
    inner = [name for name in names if name == EDITS or ("." in name and name not in own)]
    if EDITS not in inner:  # written by another program: unchanged
        return rows
    struct = rows.select(inner).to_struct_array()
    at = names.index(inner[-1]) + 1 - len(inner)
    return rows.drop_columns(inner).add_column(at, ATTRIBUTES, struct)


def chosen(rows: Rows, columns: Sequence[str]) -> Rows:
    """Return the packed rows with only id, text and the columns named in `columns`. If `columns` is
    empty, all columns stay. The single name `-attributes` removes the struct column `attributes`
    and keeps all others. Raise UsageError for a missing column."""
    names = rows.schema.names
    wanted = {"id", "text", *columns}
    if not columns or [*columns] == [f"-{ATTRIBUTES}"]:
        wanted = {*names} - {name.removeprefix("-") for name in columns}
    if missing := [name for name in columns if name.removeprefix("-") not in names]:
        raise UsageError(f"columns: no column {missing[0]!r}; the columns are {', '.join(names)}")
    return rows.select([name for name in names if name in wanted])


def unpack(rows: Rows) -> Rows:
    """Return documents with one column per attribute, as steps see them."""
    return _spread(rows) if is_packed(rows.schema) else rows


def _spread(rows: Rows) -> Rows:
    at = rows.schema.get_field_index(ATTRIBUTES)
    if at < 0:
        return rows
    names = [field.name for field in rows.schema.field(at).type]
    columns = [*rows.columns[:at], *rows.column(at).flatten(), *rows.columns[at + 1 :]]
    before, after = rows.schema.names[:at], rows.schema.names[at + 1 :]
    return type(rows).from_arrays(columns, [*before, *names, *after])


def flat(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the struct column `attributes` (scores and edits) replaced by one
    column per field of the struct. `is_attribute` returns True for such a column."""
    if not is_packed(schema):
        return schema
    at = schema.get_field_index(ATTRIBUTES)
    inner = [field.with_metadata(_STORED) for field in schema.field(at).type]
    fields = list(schema)
    return pa.schema([*fields[:at], *inner, *fields[at + 1 :]])


def is_attribute(field: pa.Field) -> bool:
    """Return True if this column of a schema from `flat` is a field of `attributes` in files."""
    return (field.metadata or {}).items() >= _STORED.items()


def read_schema(path: Path | str) -> pa.Schema:
    return flat(pq.read_schema(path))


class DocumentsFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file of documents; scores and edits in one struct are read as separate columns."""

    def __init__(self, source: Any, **how: Any) -> None:
        super().__init__(source, **how)
        self.is_packed = is_packed(super().schema_arrow)

    @property
    def schema_arrow(self) -> pa.Schema:
        return flat(super().schema_arrow)

    def iter_batches(
        self, *args: Any, columns: Iterable[str] | None = None, **how: Any
    ) -> Iterator[pa.RecordBatch]:
        for batch in super().iter_batches(*args, columns=self._stored(columns), **how):
            yield _spread(batch) if self.is_packed else batch

    def read(self, columns: Iterable[str] | None = None, **how: Any) -> pa.Table:
        table = super().read(columns=self._stored(columns), **how)
        return _spread(table) if self.is_packed else table

    def rows(
        self, numbers: np.ndarray, columns: Iterable[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows with these numbers (int64[], ascending) in small batches. Row groups
        without such rows are not read."""
        start = 0
        for group in range(self.num_row_groups):
            end = start + self.metadata.row_group(group).num_rows
            inside = numbers[(numbers >= start) & (numbers < end)]
            if not len(inside):
                start = end
                continue
            for batch in self.iter_batches(
                ROWS, row_groups=[group], columns=columns, use_threads=False
            ):
                here = inside[(inside >= start) & (inside < start + batch.num_rows)] - start
                if len(here):
                    yield batch.take(pa.array(here))
                start += batch.num_rows
                if start > inside[-1]:
                    break
            start = end

    def _stored(self, columns: Iterable[str] | None) -> list[str] | None:
        names = None if columns is None else list(columns)
        if names is None or not self.is_packed:
            return names
        return [*names, *(f"{ATTRIBUTES}.{name}" for name in names)]  # Parquet ignores unknown ones


def source_sql(paths: list[Path], options: str = "", also: Iterable[str] = ()) -> str:
    """Return SQL for a FROM clause that reads document files, with one column per attribute.
    options: named arguments of DuckDB's `read_parquet`, as SQL that begins with a comma
    (`, union_by_name = true`). also: columns that are null if the files lack them."""
    schemas = [pq.read_schema(path) for path in {*paths[:1], *paths[-1:]}]
    if len({*map(is_packed, schemas)}) > 1:  # a HOME with files of an earlier version
        packed = {path: is_packed(pq.read_schema(path)) for path in paths}
        both = ([path for path in paths if packed[path] == kind] for kind in (False, True))
        return f"({' UNION ALL BY NAME '.join(source_sql(part, options, also) for part in both)})"
    have = {name for schema in schemas for name in flat(schema).names}
    kinds = {n: "DOUBLE" if "." in n else "TIMESTAMPTZ" if n == "date" else "VARCHAR" for n in also}
    nulls = [f"NULL::{kind} AS {quoted(n)}" for n, kind in kinds.items() if n not in have]
    spread = f"* EXCLUDE ({ATTRIBUTES}), {ATTRIBUTES}.*" if is_packed(schemas[0]) else "*"
    source = f"read_parquet({paths_literal(paths)}{options})"
    return f"(SELECT {', '.join([spread, *nulls])} FROM {source})"
