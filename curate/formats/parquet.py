"""Parquet in: row groups as slices, batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from curate.documents import CORE, DATE
from curate.errors import UsageError
from curate.formats.columns import KNOWN, arrow_type, column_name
from curate.formats.inputs import open_input


def read_schema(path: str) -> pa.Schema:
    """The file's Arrow schema; empty where the file cannot be read (reading reports it)."""
    try:
        with open_input(path) as f:
            schema: pa.Schema = pq.read_schema(f)
    except (pa.ArrowInvalid, OSError):
        return pa.schema([])
    if "text" not in schema.names and "payload" not in schema.names:
        raise UsageError(f"input {path}: no column `text` (it has {', '.join(schema.names[:8])})")
    return schema


def row_group_slices(path: str, target: int) -> list[tuple[int, int | None]]:
    """[first, last) ranges of row groups of about target bytes; one whole range if unreadable."""
    try:
        with open_input(path) as f:
            meta = pq.ParquetFile(f).metadata
            sizes = [meta.row_group(g).total_byte_size for g in range(meta.num_row_groups)]
    except (pa.ArrowInvalid, OSError):
        return [(0, None)]
    slices: list[tuple[int, int | None]] = []
    first, weight = 0, 0
    for g, size in enumerate(sizes):
        if weight and weight + size > 4 * target:  # sizes are uncompressed
            slices.append((first, g))
            first, weight = g, 0
        weight += size
    slices.append((first, len(sizes)))
    return slices


def read(path: str, start: int, end: int | None, rows: int) -> Iterator[pa.Table]:
    """Tables of at most `rows` rows of the row groups [start, end)."""
    with open_input(path) as f:
        file = pq.ParquetFile(f, pre_buffer=False)
        groups = list(range(start, file.num_row_groups if end is None else end))
        if groups:
            for batch in file.iter_batches(rows, row_groups=groups, use_threads=False):
                yield pa.Table.from_batches([batch])


def conform(table: pa.Table, columns: dict[str, str], source: str) -> pa.Table:
    """The table with the run's columns: known ones cast, unknown ones as planned."""
    rows = table.num_rows
    out: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, kind in CORE:
        column = table[name] if name in table.column_names else None
        if column is None:
            filler = source if name == "source" else None
            out[name] = pa.repeat(pa.scalar(filler, kind), rows)
        elif kind == DATE:
            out[name] = _dates(column)
        else:
            out[name] = column.cast(kind)
    if "source" in table.column_names:
        out["source"] = out["source"].fill_null(source)
    for name in ("payload", "mime", "charset"):
        kind = pa.large_binary() if name == "payload" else pa.string()
        has = name in table.column_names
        out[name] = table[name].cast(kind) if has else pa.nulls(rows, kind)
    given = {column_name(n): n for n in table.column_names if n not in KNOWN}
    for name, planned in columns.items():
        want = arrow_type(planned)
        if name in given:
            column = table[given[name]]
            out[name] = column if column.type == want else column.cast(want, safe=False)
        else:
            out[name] = pa.nulls(rows, want)
    return pa.table(out)


def _dates(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            column = column.cast(pa.timestamp(column.type.unit)).cast(
                pa.timestamp("us"), safe=False
            )
        return column.cast(DATE, safe=False)
    from curate.formats.jsonl import parse_date

    return pa.chunked_array([pa.array([parse_date(v) for v in column.to_pylist()], DATE)])
