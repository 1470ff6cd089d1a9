"""The files of a stage's folder: who reads and writes them knows their layout from here.

What a stage keeps of a partition is two files with the same rows: `kept`, as a corpus has them,
and `keys`, what only later stages need (the document's number, payloads that are no text yet). So
the last stage's `kept` becomes a part of the corpus as it is, without being read and written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.documents.documents import NUMBER, PAYLOAD

INNER = (NUMBER, *(name for name, _ in PAYLOAD))


def part_path(folder: Path, part: int, kind: str) -> Path:
    """Where partition `part` of a stage keeps its `kind` of rows."""
    return folder / f"part-{part:05d}.{kind}.parquet"


def part_of(path: Path) -> int:
    """The partition that a file of `part_path` is of."""
    return int(path.name.partition(".")[0].removeprefix("part-"))


def public(table: pa.Table) -> pa.Table:
    """The table without what only a run needs."""
    hidden = [n for n in INNER if n in table.column_names]
    return table.drop_columns(hidden) if hidden else table


def keys(table: pa.Table) -> pa.Table:
    """What `public` leaves out."""
    return table.select([n for n in INNER if n in table.column_names])


def kept_schema(folder: Path, part: int) -> pa.Schema:
    """The schema of what a stage kept, both files together."""
    both = [pq.read_schema(part_path(folder, part, kind)) for kind in ("kept", "keys")]
    return pa.schema([field for schema in both for field in schema])


def read_kept(folder: Path, part: int, rows: int) -> Iterator[pa.Table]:
    """What a stage kept of a partition, in batches of at most `rows` rows and of one row group of
    either file, since a group ends where its rows have many bytes."""
    with (
        pq.ParquetFile(part_path(folder, part, "kept")) as kept,
        pq.ParquetFile(part_path(folder, part, "keys")) as inner,
    ):
        names = [*kept.schema_arrow.names, *inner.schema_arrow.names]
        of_kept, of_inner = _by_group(kept, rows), _by_group(inner, rows)
        a, b = next(of_kept, None), next(of_inner, None)
        while a is not None and b is not None:
            count = min(len(a), len(b))
            columns = [*a.slice(0, count).columns, *b.slice(0, count).columns]
            yield pa.Table.from_arrays(columns, names)
            a = a.slice(count) if len(a) > count else next(of_kept, None)
            b = b.slice(count) if len(b) > count else next(of_inner, None)


def _by_group(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], use_threads=False)


def changed_ids(path: str | None, part: int) -> dict[int, str]:
    """New ids of a partition's documents by number, from the settlement after the first stage."""
    if path is None:
        return {}
    rows = pq.read_table(path, filters=[("part", "=", part)], columns=[NUMBER, "id"])
    return dict(zip(rows[NUMBER].to_pylist(), rows["id"].to_pylist(), strict=True))


def with_ids(table: pa.Table, changed: dict[int, str]) -> pa.Table:
    """The table with final ids."""
    if not changed or table.num_rows == 0:
        return table
    ids = [
        changed.get(n, old)
        for n, old in zip(table[NUMBER].to_pylist(), table["id"].to_pylist(), strict=True)
    ]
    at = table.column_names.index("id")
    return table.set_column(at, "id", pa.array(ids, pa.string()))
