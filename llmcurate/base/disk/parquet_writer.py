"""Parquet files that are either complete or absent. Their row groups depend only on the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import RunFailed, set_error_file

GROUP_ROWS = 10_000
GROUP_BYTES = 16 << 20
DISTINCT = {"text", "id", "url", "html"}


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, without a copy if it already is one."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with exactly the columns of the schema; missing columns are null. Raises
    RunFailed, which names the column, if values do not fit the column's type."""
    if table.schema == schema:
        return table
    columns = []
    for f in schema:
        if f.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, f.type))
            continue
        column = one_array(table[f.name])
        try:
            columns.append(column.cast(f.type))
        except pa.ArrowException as error:
            raise RunFailed(
                f"column {f.name} was {f.type} and is now {column.type}, which does not fit: a"
                f" step must give a column the same type in all batches ({error})"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def row_bytes(values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return the size of each row in bytes, plus 8 for each value: int64[rows]. Unlike Arrow's
    `nbytes`, it does not depend on the layout in memory, so all runs end row groups at the same
    rows."""
    kind = values.type
    size = np.full(len(values), 8, np.int64)
    if isinstance(values, pa.ChunkedArray) and pa.types.is_nested(kind):
        return np.concatenate([size[:0], *map(row_bytes, values.chunks)])
    if isinstance(values, pa.ExtensionArray):
        return row_bytes(values.storage)
    if pa.types.is_dictionary(kind):
        return row_bytes(values.cast(kind.value_type))
    if kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        size += pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    elif pa.types.is_struct(kind):
        for k in range(kind.num_fields):
            size += row_bytes(pc.struct_field(values, [k]))
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends = values.offsets.to_numpy().astype(np.int64)
        inner = (values.keys, values.items) if pa.types.is_map(kind) else (values.values,)
        for items in inner:
            sums = np.concatenate(([0], np.cumsum(row_bytes(items))))
            size += np.diff(sums[ends])
    elif not (pa.types.is_primitive(kind) or pa.types.is_null(kind)):
        size += values.nbytes // max(1, len(values))  # other types: views, unions, 128-bit numbers
    return size


class TableWriter:
    """A parquet file whose row groups depend on the rows alone; `close` moves it into place.
    `sink(path)` opens the temporary file to write to; if `sink` is None, Arrow opens it."""

    def __init__(self, path: Path, sink: Callable[[Path], Any] | None = None) -> None:
        self._path = path
        self._context = replacing(path)
        self._aside = self._context.__enter__()
        self.sink: Any = sink(self._aside) if sink else None
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add rows. The first table sets the schema, even if it is empty."""
        if self._writer is None:
            self._schema = table.schema
            # Dictionaries and min/max statistics are expensive for values that rarely repeat.
            others = [f.name for f in table.schema if f.name not in DISTINCT]
            self._writer = pq.ParquetWriter(
                self._aside if self.sink is None else self.sink,
                table.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=others,
                write_statistics=others,
            )
        if table.num_rows == 0:
            return
        table = conform(table, self._schema)
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += sum(int(row_bytes(column).sum()) for column in table.columns)
        self.rows += table.num_rows
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting and self._writer is not None:
            table = pa.concat_tables(self._waiting).combine_chunks()
            try:
                self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            except OSError as error:
                set_error_file(error, self._path)
                raise
        self._waiting, self._rows, self._bytes = [], 0, 0

    def close(self, failed: bool = False) -> None:
        """Complete the parquet file and move it into place. If `failed`, discard it instead."""
        error = RuntimeError("unfinished") if failed else None
        try:
            if not failed:
                self._flush()
            if self._writer is not None:
                self._writer.close()
            if self.sink is not None:
                self.sink.close()
        except BaseException as problem:
            with suppress(type(problem)):
                self._context.__exit__(type(problem), problem, problem.__traceback__)
            raise
        if error is None:
            self._context.__exit__(None, None, None)
        else:
            with suppress(RuntimeError):
                self._context.__exit__(type(error), error, None)


@contextmanager
def writing(path: Path, sink: Callable[[Path], Any] | None = None) -> Iterator[TableWriter]:
    """Yield a `TableWriter`; close it at the end of the block. After an error, no file is left."""
    writer = TableWriter(path, sink)
    done = False
    try:
        yield writer
        done = True
    finally:
        writer.close(failed=not done)
