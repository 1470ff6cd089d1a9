"""Candidates in the order in which copies are preferred, and their ids.

The order is DuckDB's, by a sort that spills. Ids are kept in that order, one after the other in a
file, so that id number k is found without a join.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numba import njit

from curate.database import literal
from curate.dedup.minhash.buckets import BITS, set_bits
from curate.sketches import Sketches
from curate.text.buffers import as_large_string, text_array, text_buffers

ROWS, ORDER, NAMES, ENDS = "candidates.parquet", "order.u32", "ids.utf8", "ids.i64"
BATCH = 100_000
MAPPED = 64 << 20  # bytes of a file that may stay mapped
PREFERRED_BY = ("size", "date", "source", "score", "url_md5")


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


def candidate_batches(
    sketches: Sketches, columns: list[str], bits: np.ndarray, rows: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """The sketches of candidates in order of (part, n), as `Sketches.batches` gives them."""
    first = 0
    for batch in sketches.batches(columns, rows):
        mine = set_bits(bits, first, first + len(batch))
        first += len(batch)
        if len(mine):
            yield batch if len(mine) == len(batch) else batch.take(pa.array(mine))


def write_candidates(
    folder: Path, sketches: Sketches, bits: Path, count: int, preference: str
) -> dict[str, Any]:
    """Phase `candidates`: rows (c, part, n, id, what they are preferred by) in order of c; k of
    each c; ids in order of k. preference: ORDER BY terms over those rows."""
    source = candidate_batches(sketches, list(PREFERRED_BY), np.fromfile(bits / BITS, np.uint64))
    writer = None
    done = 0
    try:
        for batch in source:
            number = pa.array(np.arange(done, done + len(batch), dtype=np.uint32))
            table = pa.Table.from_batches([batch]).append_column("c", number)
            if writer is None:
                writer = pq.ParquetWriter(folder / ROWS, table.schema, compression="lz4")
            writer.write_table(table)
            done += len(batch)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        pq.write_table(pa.table({"part": [], "n": [], "id": []}), folder / ROWS)
    order = np.empty(count, np.uint32)
    with (folder / NAMES).open("wb") as names, (folder / ENDS).open("wb") as ends:
        ends.write(np.zeros(1, np.int64).data)
        k = total = 0
        query = f"SELECT c, id FROM read_parquet({literal(folder / ROWS)}) ORDER BY {preference}"
        for batch in arrow_batches(sketches.connection.sql(query)) if count else ():
            order[batch.column(0).to_numpy()] = np.arange(k, k + len(batch), dtype=np.uint32)
            data, offsets = text_buffers(as_large_string(batch.column(1)))
            names.write(data[offsets[0] : offsets[-1]].data)
            ends.write((offsets[1:] - offsets[0] + total).data)
            k += len(batch)
            total += int(offsets[-1] - offsets[0])
    order.tofile(folder / ORDER)
    return {}


def arrow_batches(relation: Any) -> Iterator[pa.RecordBatch]:
    """The result of a DuckDB query, a batch at a time."""
    modern = hasattr(relation, "to_arrow_reader")  # else a DuckDB of 2025 or before
    yield from relation.to_arrow_reader(BATCH) if modern else relation.fetch_arrow_reader(BATCH)


class Ids:
    """The candidates' ids by k, from files that are mapped into memory."""

    def __init__(self, folder: Path) -> None:
        self._ends = mapped(folder / ENDS, np.int64)
        self._data = mapped(folder / NAMES, np.uint8)

    def of(self, which: np.ndarray) -> pa.LargeStringArray:
        """Their ids; an empty text for a number that no candidate has."""
        return text_array(*gather(self._data.view(np.ndarray), self._ends.view(np.ndarray), which))

    def forget(self) -> None:
        """Gives the memory of what was read back to the system."""
        release(self._ends)
        release(self._data)


def mapped(path: Path, dtype: Any) -> np.ndarray:
    """The numbers in a file, mapped into memory to be read."""
    if path.stat().st_size == 0:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r")


def release(array: np.ndarray) -> None:
    """Unmaps what was read of a large array that lies in a file; the system may keep it cached."""
    import mmap

    mapped = getattr(array, "_mmap", None)
    if mapped is not None and array.nbytes > MAPPED:
        mapped.madvise(mmap.MADV_DONTNEED)


def null_where(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """The array with nulls where `mask` is set."""
    return pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))
