"""Tables from every task of one phase to every task of the next: a file a writer, in it a record
batch a reader, which reads its own alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from curate.disk.atomic import replacing


def write_slices(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes the tables, one for each reader in order; whole or absent."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    none = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    with (
        replacing(path, sync=False) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, schema, options=options) as writer,
    ):
        for table in tables:
            whole = table.cast(schema).combine_chunks().to_batches()
            writer.write_batch(whole[0] if whole else none)


def read_slice(paths: Sequence[Path], number: int) -> Iterator[pa.RecordBatch]:
    """What every writer has for reader `number`, in the order of writers."""
    for path in paths:
        with pa.OSFile(str(path)) as file:
            yield pa.ipc.open_file(file).get_batch(number)
