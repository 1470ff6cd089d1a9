"""Measuring the sources of a mix: one reading gives sizes by stratum and a small row a document.

The rows (stratum, key, size, bytes, hash of the text) lie in a parquet file, so that choosing
documents and counting copies need no memory of the corpus. The documents themselves go to disk as
they were decoded: writing the mix does not read the sources again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.mix.design import Key
from curate.mix.order import seed_of
from curate.mix.sizes import Sizes
from curate.mix.sources import SOURCE, Source
from curate.mix.strata import Strata
from curate.text.buffers import as_large_string, text_buffers
from llmcurate.base.disk.parquet_writer import writing

if TYPE_CHECKING:
    from curate.mix.overlap import Near
    from curate.mix.spill import Copy

ROWS = 200_000


@dataclass
class Measured:
    """path: the rows; documents, sizes, bytes: of each stratum, by its number."""

    path: Path
    strata: Strata
    documents: np.ndarray
    sizes: np.ndarray
    bytes: np.ndarray

    def keyed(self, values: np.ndarray) -> dict[Key, int]:
        """Values of strata by (group, bucket)."""
        return {key: int(values[number]) for key, number in self.strata.keys.items()}

    def rows(self, *columns: str) -> Iterator[list[np.ndarray]]:
        """The columns of all documents, in the order of reading, some at a time."""
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS, columns=list(columns), use_threads=False):
                yield [batch[name].to_numpy(zero_copy_only=False) for name in columns]


class Rows:
    """Columns that come some at a time, taken in pieces of any length."""

    def __init__(self, parts: Iterator[list[np.ndarray]]) -> None:
        self._parts, self._left = parts, next(parts, [])

    def take(self, count: int) -> list[np.ndarray]:
        """The columns of the next rows, of which there are so many."""
        pieces = []
        while count:
            if not len(self._left[0]):
                self._left = next(self._parts)
            pieces.append([column[:count] for column in self._left])
            self._left = [column[count:] for column in self._left]
            count -= len(pieces[-1][0])
        return [np.concatenate(columns) for columns in zip(*pieces, strict=True)]


def base_keys(source: Source, batch: pa.RecordBatch, seed: int) -> np.ndarray:
    """uint64[rows]: the key of each document in the first epoch of its source."""
    from tokenize_kit.shards.shuffle import keys

    return keys(batch["id"], seed_of(source.name, seed))


def text_hashes(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """uint8[rows, 16]: xxh3-128 of texts, as exact dedup has it by default. Apart from its module,
    since loading numba takes longer than hashing a gigabyte."""
    from xxhash import xxh3_128_digest

    view = data.data
    joined = b"".join(xxh3_128_digest(view[a:z]) for a, z in pairwise(offsets.tolist()))
    return np.frombuffer(joined, np.uint8).reshape(-1, 16)


def measure(
    sources: list[Source],
    strata: Strata,
    sizes: Sizes,
    seed: int,
    path: Path,
    hashed: bool,
    near: Near | None = None,
    copy: Copy | None = None,
) -> Measured:
    """Reads all sources once. hashed: whether rows hold hashes of texts; near, copy: what is given
    the documents that are not left out, copy in one schema and with their source."""
    sums: list[np.ndarray] = []
    strata.begin()
    row = 0
    with writing(path) as writer:
        nothing = np.empty(0, np.int64)
        writer.write(_rows(nothing, nothing, nothing, nothing, None))
        for source in sources:
            for batch in source.read():
                if not batch.num_rows:
                    continue
                number = strata.of(source.name, batch)
                data, offsets = text_buffers(as_large_string(batch["text"]))
                counted = sizes.of(source.name, batch, data, offsets)
                length = np.diff(offsets)
                key = base_keys(source, batch, seed)
                hashes = text_hashes(data, offsets) if hashed else None
                inside = number >= 0
                if not inside.all():
                    number, key = number[inside], key[inside]
                    counted, length = counted[inside], length[inside]
                    hashes = hashes[inside] if hashes is not None else None
                    batch = batch.filter(pa.array(inside))
                if near is not None:
                    near.add(source.name, row, batch)
                if copy is not None and batch.num_rows:
                    named = pa.repeat(source.name, batch.num_rows)
                    copy.add(pa.Table.from_batches([batch]).append_column(SOURCE, named))
                row += len(number)
                strata_count = len(strata.keys)
                sums.append(_sums(number, strata_count, counted, length))
                writer.write(_rows(number, key, counted, length, hashes))
    sizes.end()
    if copy is not None:
        copy.close()
    strata_count = len(strata.keys)
    total = np.zeros((3, strata_count), np.int64)
    for batch_sums in sums:
        total[:, : batch_sums.shape[1]] += batch_sums
    return Measured(path, strata, *total)


def _sums(number: np.ndarray, strata_count: int, *values: np.ndarray) -> np.ndarray:
    """int64[3, strata]: documents, sizes and bytes of each stratum in a batch."""
    totals = np.zeros((3, strata_count), np.int64)
    np.add.at(totals[0], number, 1)
    for row, value in enumerate(values, 1):
        np.add.at(totals[row], number, value)
    return totals


def _rows(
    number: np.ndarray,
    key: np.ndarray,
    size: np.ndarray,
    length: np.ndarray,
    hashes: np.ndarray | None,
) -> pa.Table:
    kind = pa.binary(16)
    if hashes is None:
        text = pa.nulls(len(number), kind)
    else:
        flat = pa.py_buffer(np.ascontiguousarray(hashes))
        text = pa.FixedSizeBinaryArray.from_buffers(kind, len(number), [None, flat])
    return pa.table(
        {
            "stratum": pa.array(number, pa.int32()),
            "key": pa.array(key, pa.uint64()),
            "size": pa.array(size, pa.int64()),
            "bytes": pa.array(length, pa.int64()),
            "hash": text,
        }
    )
