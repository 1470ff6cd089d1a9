"""Decisions of corpus steps on documents, and their figures for the report. Tasks write decisions
to Arrow files, which are then joined into one Parquet file. The row groups of the Parquet file
depend only on the rows, not on the number of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from llmcurate.base.disk.files import replacing

ROWS = 100_000  # per row group and per batch

# The first columns of every step's decisions.
COLUMNS = pa.schema(
    [
        ("part", pa.int32()),
        ("n", pa.int64()),
        ("drop", pa.bool_()),
        ("id", pa.string()),
        ("cluster", pa.int64()),
        ("kept_id", pa.string()),
        ("partner_id", pa.string()),
        ("similarity", pa.float64()),
        ("method", pa.string()),
        ("span_start", pa.int64()),
        ("span_end", pa.int64()),
    ]
)


@dataclass
class Decision:
    """A step's decision on one document, such as a duplicate: a row of decisions.parquet."""

    JSON = (
        "id", "cluster", "kept_id", "partner_id", "similarity", "method", "span_start", "span_end",
        "partner_corpus?against", "text?",
    )  # fmt: skip
    id: str
    cluster: int | None  # number of the document's set of duplicates
    kept_id: str | None
    partner_id: str | None  # the document that this one duplicates
    similarity: float | None
    method: str
    span_start: int | None  # first byte of a passage in the step's input; None for a document
    span_end: int | None  # end of the passage, in bytes
    partner_corpus: str | None = None  # name of the partner's corpus, if it is an earlier one
    against: bool = False  # True if the step compared with earlier corpora
    text: str | None = None  # the cut text, if known
    description: str | None = None  # a sentence that the step itself wrote

    @classmethod
    def rows(cls, table: pa.Table) -> list[Decision]:
        against = "partner_corpus" in table.column_names
        names = [each.name for each in fields(cls)[:9]]
        return [cls(*[*map(row.get, names), against]) for row in table.to_pylist()]

    @property
    def partner(self) -> str | None:
        """The id of the partner document, and its corpus if that is an earlier corpus."""
        corpus = self.partner_corpus
        return f"{self.partner_id} in {corpus}" if corpus else self.partner_id


@dataclass(frozen=True)
class Curve:
    """A curve of the report."""

    title: str
    x_label: str
    y_label: str
    x: list[float]
    y: list[float]
    mark: tuple[float, float, str]  # one marked point: (x, y, label)


@dataclass(frozen=True)
class Decided:
    """The figures that a step returns after its decisions, for the report."""

    counts: Mapping[str, float]  # numbers of clusters, members, dropped and so on
    notes: list[str] = field(default_factory=list)  # sentences on the method
    curves: list[Curve] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)  # further figures, as JSON

    def record(self) -> dict[str, Any]:
        curves = [{**asdict(curve), "mark": [*curve.mark]} for curve in self.curves]
        lists = {"notes": self.notes, "curves": curves}
        return {**self.counts, **self.tables, **{k: v for k, v in lists.items() if v}}


PIECE = "decisions.arrow"  # the file of each task


@contextmanager
def arrow_writer(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchWriter]:
    """Open an Arrow file for writing record batches. The file appears only when it is complete."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        replacing(path, sync=False) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, schema, options=options) as writer,
    ):
        yield writer


def completed(schema: pa.Schema, rows: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return `rows` decisions with these columns. All other columns of the schema are null."""
    arrays = [
        columns[f.name].cast(f.type) if f.name in columns else pa.nulls(rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_piece(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with arrow_writer(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def join_pieces(path: Path, schema: pa.Schema, pieces: list[Path]) -> None:
    """Join the tasks' files, in the order of `pieces`, into one Parquet file."""

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            with pa.OSFile(str(piece)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)

    with pq.ParquetWriter(path, schema) as writer:
        for table in even_tables(batches(), ROWS):
            writer.write_table(table)


def even_tables(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield the batches' rows in tables of one chunk and `rows` rows. The last table may be
    shorter."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for batch in batches:
        waiting.append(batch)
        waiting_rows += len(batch)
        while waiting_rows >= rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, rows).combine_chunks()
            waiting = table.slice(rows).to_batches()
            waiting_rows -= rows
    if waiting_rows:
        yield pa.Table.from_batches(waiting).combine_chunks()
