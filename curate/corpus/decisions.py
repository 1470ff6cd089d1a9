"""Decisions in pieces, one a task, and one file of all.

Pieces are Arrow files. The file of all has row groups that depend on its rows alone, so it is the
same however the work was cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from llmcurate.base.disk.files import replacing

ROWS = 100_000  # of a row group, and of a batch

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


def piece_files(folder: Path, count: int) -> list[Path]:
    """Those of so many tasks, in order."""
    return [folder / f"decisions-{part:05d}.arrow" for part in range(count)]


def write_piece(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Writes one, as a task of a phase does."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        replacing(path, sync=False) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, schema, options=options) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def join_pieces(path: Path, schema: pa.Schema, pieces: list[Path]) -> None:
    """The decisions' file, of the pieces in their order; held are a few batches."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    with pq.ParquetWriter(path, schema) as writer:
        for piece in pieces:
            with pa.OSFile(str(piece)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    waiting.append(batch)
                    waiting_rows += len(batch)
                    while waiting_rows >= ROWS:
                        table = pa.Table.from_batches(waiting)
                        writer.write_table(table.slice(0, ROWS).combine_chunks())
                        waiting = table.slice(ROWS).to_batches()
                        waiting_rows -= ROWS
        if waiting_rows:
            writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
