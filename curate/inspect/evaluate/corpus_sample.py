"""A corpus of bounded size, drawn by seed from any input, in one file with ids of its own."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.direct import DirectInput
from curate.disk.files import replacing
from curate.disk.parquet_writer import TableWriter, conform, writing
from curate.errors import UsageError
from curate.formats.inputs import plan_inputs
from curate.formats.reading import ReadSettings
from curate.text.near_copies import drawn_number

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),
        ("url", pa.string()),
        ("date", pa.timestamp("us", tz="UTC")),
        ("source", pa.string()),
        ("lang", pa.string()),
    ]
)
ROWS = 500


def draw(inputs: list[str], read: ReadSettings, most: int, seed: int, path: Path) -> int:
    """Writes at most `most` documents that have text; returns how many the input has.

    Which ones depends on the seed and the input alone; they stay in input order. Repeated ids get
    `~2`, `~3`, so that ids name documents. UsageError where no document has text.
    """
    plan = plan_inputs(inputs, read.partition_bytes)
    direct = DirectInput(plan, read)
    names = (i for batch in direct.batches(["id"]) for i in batch["id"].to_pylist())
    ranked = ((drawn_number(seed, "draw", name, at), at) for at, name in enumerate(names))
    chosen = {at for _, at in heapq.nsmallest(most, ranked)}
    if not chosen:
        raise UsageError("no document of the input has text")
    count = 0
    seen: dict[str, int] = {}
    with sample_writer(path) as writer:
        for batch in direct.batches(None):
            rows = [i for i in range(len(batch)) if count + i in chosen]
            count += len(batch)
            if rows:
                table = conform(pa.Table.from_batches([batch.take(pa.array(rows))]), SCHEMA)
                ids = pa.array([_apart(i, seen) for i in table["id"].to_pylist()], pa.string())
                writer.write(table.set_column(0, "id", ids))
    return count


def _apart(name: str, seen: dict[str, int]) -> str:
    """The id, or the first `id~N` that no document has had yet."""
    original = name
    while name in seen:
        seen[original] += 1
        name = f"{original}~{seen[original]}"
    seen[name] = 1
    return name


@contextmanager
def sample_writer(path: Path) -> Iterator[TableWriter]:
    """Writes a parquet file of SCHEMA; where the same bytes stand there already it stays untouched,
    so that runs over it find the same input."""
    with replacing(path, if_other=True) as aside, writing(aside) as writer:
        writer.write(SCHEMA.empty_table())
        yield writer


def batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The documents of a sample, a few at a time."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(ROWS, columns=columns, use_threads=False)
