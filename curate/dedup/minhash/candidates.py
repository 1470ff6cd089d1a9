"""Candidates in the order in which copies are preferred, and their ids.

Tasks read the candidates' sketches. The order is DuckDB's, by a sort that spills, in one process.
Ids are kept in that order, one after the other in a file, so that id number k is found without a
join.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.corpus.shuffle.arrays import map_array, new_array, unmap
from curate.corpus.shuffle.candidates import Picked, picked
from curate.corpus.shuffle.tasks import Group, run_tasks
from curate.corpus.sketches import Sketches, Task
from curate.dedup import survivors
from curate.disk.atomic import replacing
from curate.disk.database import paths_literal
from curate.text.buffers import as_large_string, text_array, text_buffers
from kernel_cache import njit

ORDER, NAMES, ENDS = "order.u32", "ids.utf8", "ids.i64"
BATCH = 100_000


@njit(cache=True, nogil=True)
def gather(data, ends, which):
    """(bytes: uint8, offsets: int64[len(which) + 1]) of the texts number `which`; text k is
    data[ends[k]:ends[k + 1]]; a number outside of them is an empty one."""
    offsets = np.zeros(len(which) + 1, np.int64)
    for i in range(len(which)):
        k = np.int64(which[i])
        size = ends[k + 1] - ends[k] if k < len(ends) - 1 else 0
        offsets[i + 1] = offsets[i] + size
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(which)):
        k = np.int64(which[i])
        for j in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + j] = data[ends[k] + j]
    return out, offsets


def row_files(folder: Path, count: int) -> list[Path]:
    """The candidates' rows, a file a group."""
    return [folder / f"rows-{part:05d}.parquet" for part in range(count)]


def write_rows_files(task: Task) -> dict[str, list[str]]:
    """What `write_rows` reads and writes."""
    mine = Picked.load(task)
    return {"reads": mine.reads(), "writes": [str(mine.folder / _rows_name(mine))]}


def _rows_name(mine: Picked) -> str:
    return f"rows-{mine.group.part:05d}.parquet"


def write_rows(task: Task) -> dict[str, Any]:
    """A task: rows (what they are preferred by, part, n, id, c) of a group's candidates, in order
    of c, a batch at a time."""
    mine = Picked.load(task)
    columns = list(task["columns"])
    schema = mine.schema(columns).append(pa.field("c", pa.uint32()))
    c = mine.before
    with (
        replacing(mine.folder / _rows_name(mine)) as aside,
        pq.ParquetWriter(aside, schema, compression="lz4") as writer,
    ):
        for batch in mine.batches(columns):
            number = pa.array(np.arange(c, c + len(batch), dtype=np.uint32))
            table = pa.Table.from_batches([batch]).append_column("c", number)
            writer.write_table(table.cast(schema))
            c += len(batch)
    return {}


def write_candidates(
    folder: Path, sketches: Sketches, found: list[Group], bits: Path, count: int, policy: str
) -> dict[str, Any]:
    """Phase `candidates`: their rows; k of each c; ids in order of k. policy: of the survivor."""
    columns = survivors.preferred_by(policy)
    tasks = picked(found, bits, folder, columns=columns)
    run_tasks(sketches.run, "curate.dedup.minhash.candidates:write_rows", tasks)
    order = new_array(count, np.uint32, folder)
    with (folder / NAMES).open("wb") as names, (folder / ENDS).open("wb") as ends:
        ends.write(np.zeros(1, np.int64).data)
        k = total = 0
        source = f"read_parquet({paths_literal(row_files(folder, len(found)))})"
        query = f"SELECT c, id FROM {source} ORDER BY {survivors.preference(policy)}"
        for batch in arrow_batches(sketches.connection.sql(query)) if count else ():
            order[batch.column(0).to_numpy()] = np.arange(k, k + len(batch), dtype=np.uint32)
            data, offsets = text_buffers(as_large_string(batch.column(1)))
            names.write(data[offsets[0] : offsets[-1]].data)
            ends.write((offsets[1:] - offsets[0] + total).data)
            k += len(batch)
            total += int(offsets[-1] - offsets[0])
    order.tofile(folder / ORDER)
    return {}


def all_rows(folder: Path, pieces: int) -> Iterator[pa.RecordBatch]:
    """(part, n, id) of all candidates in order of c, BATCH at a time whatever the pieces."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for path in row_files(folder, pieces):
        with pq.ParquetFile(path, pre_buffer=False) as source:
            for batch in source.iter_batches(BATCH, columns=["part", "n", "id"], use_threads=False):
                waiting.append(batch)
                held += len(batch)
                while held >= BATCH:
                    table = pa.Table.from_batches(waiting).combine_chunks()
                    yield table.slice(0, BATCH).to_batches()[0]
                    waiting = table.slice(BATCH).to_batches()
                    held -= BATCH
    if held:
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def arrow_batches(relation: Any) -> Iterator[pa.RecordBatch]:
    """The result of a DuckDB query, a batch at a time."""
    modern = hasattr(relation, "to_arrow_reader")  # else a DuckDB of 2025 or before
    yield from relation.to_arrow_reader(BATCH) if modern else relation.fetch_arrow_reader(BATCH)


class Ids:
    """The candidates' ids by k, from files that are mapped into memory."""

    def __init__(self, folder: Path) -> None:
        self._ends = map_array(folder / ENDS, np.int64)
        self._data = map_array(folder / NAMES, np.uint8)

    def of(self, which: np.ndarray) -> pa.LargeStringArray:
        """Their ids; an empty text for a number that no candidate has."""
        return text_array(*gather(self._data.view(np.ndarray), self._ends.view(np.ndarray), which))

    def forget(self) -> None:
        """Gives the memory of what was read back to the system."""
        unmap(self._ends)
        unmap(self._data)


def null_where(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """The array with nulls where `mask` is set."""
    return pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))
