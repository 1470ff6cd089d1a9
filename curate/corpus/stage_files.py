"""The files of a stage's folder: who reads and writes them knows their layout from here.

What a stage keeps of a partition is two files with the same rows: `kept`, as a corpus has them,
and `keys`, what only later stages need (the document's number, payloads that are no text yet). So
the last stage's `kept` becomes a part of the corpus as it is, without being read and written anew.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.disk.parquet_writer import one_array
from curate.documents.documents import NUMBER, PAYLOAD

INNER = (NUMBER, *(name for name, _ in PAYLOAD))


def part_path(folder: Path, part: int, kind: str) -> Path:
    """Where partition `part` of a stage keeps its `kind` of rows."""
    return folder / f"part-{part:05d}.{kind}.parquet"


def kept_paths(folder: Path, part: int) -> list[str]:
    """Both files of what a stage kept of a partition."""
    return [str(part_path(folder, part, kind)) for kind in ("kept", "keys")]


def public(table: pa.Table) -> pa.Table:
    """The table without what only a run needs."""
    hidden = [n for n in INNER if n in table.column_names]
    return table.drop_columns(hidden) if hidden else table


def keys(table: pa.Table) -> pa.Table:
    """What `public` leaves out."""
    return table.select([n for n in INNER if n in table.column_names])


def written_schema(path: Path) -> pa.Schema:
    """The schema that a file was written with; what is read names the items of lists otherwise."""
    stored = pq.read_metadata(path).metadata[b"ARROW:schema"]
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored))).remove_metadata()


def kept_schema(folder: Path, part: int) -> pa.Schema:
    """The schema of what a stage kept, both files together."""
    both = [pq.read_schema(part_path(folder, part, kind)) for kind in ("kept", "keys")]
    return pa.schema([field for schema in both for field in schema])


def read_kept(folder: Path, part: int, rows: int) -> Iterator[pa.Table]:
    """What a stage kept of a partition, in batches of at most `rows` rows."""
    with (
        pq.ParquetFile(part_path(folder, part, "kept")) as kept,
        pq.ParquetFile(part_path(folder, part, "keys")) as inner,
    ):
        beside = _Rows(inner.iter_batches(rows, use_threads=False))
        for batch in kept.iter_batches(rows, use_threads=False):
            table = pa.Table.from_batches([batch])
            for name, column in zip(inner.schema_arrow.names, beside.take(len(batch)), strict=True):
                table = table.append_column(name, column)
            yield table


class _Rows:
    """Batches as one run of rows, taken in pieces of any size."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> list[pa.Array]:
        """The columns of the next `count` rows."""
        parts: list[pa.RecordBatch] = []
        missing = count
        while missing:
            batch = self._left if self._left is not None else next(self._batches)
            part = batch.slice(0, missing)
            self._left = batch.slice(missing) if len(batch) > missing else None
            missing -= len(part)
            parts.append(part)
        if len(parts) == 1:
            return list(parts[0].columns)
        return [one_array(column) for column in pa.Table.from_batches(parts).columns]


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
