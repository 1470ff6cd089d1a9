"""What there is to mix: the sources read once, sizes by stratum, and a small row a document.

The rows (stratum, key, size, bytes, hash of the text) lie in a parquet file, so that choosing
documents and counting copies need no memory of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.mix.design import Key
from curate.mix.order import seed_of
from curate.mix.sizes import Sizes
from curate.mix.sources import Source
from curate.mix.strata import Strata
from curate.table_writer import writing
from curate.text.buffers import as_large_string, text_buffers

if TYPE_CHECKING:
    from curate.mix.near import Near

HASH = "xxh3-128"  # as exact dedup compares texts by default
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


def base_keys(source: Source, batch: pa.RecordBatch, seed: int) -> np.ndarray:
    """uint64[rows]: the key of each document in the first epoch of its source."""
    from tokenize_kit.mixture import text_hashes

    ids = text_buffers(as_large_string(pc.fill_null(batch["id"], "")))
    found: np.ndarray = text_hashes(*ids, np.uint64(seed_of(source.name, seed)))
    return found


def measure(
    sources: list[Source],
    strata: Strata,
    sizes: Sizes,
    seed: int,
    path: Path,
    hashed: bool,
    near: Near | None = None,
) -> Measured:
    """Reads all sources once. hashed: whether rows hold hashes of texts; near: what is given the
    documents too."""
    from curate.dedup.hashes import digests

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
                found = digests(data, offsets, HASH) if hashed else None
                inside = number >= 0
                if not inside.all():
                    number, key = number[inside], key[inside]
                    counted, length = counted[inside], length[inside]
                    found = found[inside] if found is not None else None
                    batch = batch.filter(pa.array(inside))
                if near is not None:
                    near.add(source.name, row, batch)
                row += len(number)
                many = len(strata.keys)
                sums.append(_sums(number, many, counted, length))
                writer.write(_rows(number, key, counted, length, found))
    sizes.end()
    many = len(strata.keys)
    total = np.zeros((3, many), np.int64)
    for one in sums:
        total[:, : one.shape[1]] += one
    return Measured(path, strata, *total)


def _sums(number: np.ndarray, many: int, *values: np.ndarray) -> np.ndarray:
    """int64[3, strata]: documents, sizes and bytes of each stratum in a batch."""
    found = np.zeros((3, many), np.int64)
    np.add.at(found[0], number, 1)
    for row, value in enumerate(values, 1):
        np.add.at(found[row], number, value)
    return found


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
