"""Sort documents on disk, into a random order that depends on a seed, or by given keys.

A document's sort key is a hash of seed and id, or its key in `DocumentKeys`. Documents with equal
ids stay in input order. First, encoded documents are written to one file in runs of a few million
tokens, each run sorted by the first bits of the keys. Then documents with the same first bits are
read and sorted, one such bucket after another. Memory holds one run and one bucket's table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from llmcurate.base.disk.files import sync_path
from llmcurate.base.messages import Message
from tokenize_kit.shards.shard_files import (
    DOCUMENTS,
    Encoded,
    concatenate,
    gather,
    open_at,
    sync_open,
)

_BITS = 8  # first bits of the key: 256 buckets
RUN_TOKENS = 1 << 22  # tokens sorted at once
_RUN_DOCUMENTS = 1 << 17
_SPILLED = DOCUMENTS.append(pa.field("key", pa.uint64())).append(pa.field("start", pa.int64()))


def keys(ids: pa.ChunkedArray, seed: int = 0) -> np.ndarray:
    """Return uint64[rows]: the seeded xxh3-64 hash of each UTF-8 id; a null id counts as empty."""
    names = ids.cast(pa.large_binary()).fill_null(b"").to_pylist()
    return np.fromiter(map(xxhash.xxh3_64_intdigest, names, repeat(seed)), np.uint64, len(ids))


@dataclass(frozen=True)
class DocumentKeys:
    """Sort keys that replace the hashes of document ids as the order of documents. ids: uint64[n],
    the hashes of the ids (from the function `keys`), ascending; values: uint64[n], the sort keys.
    The two arrays take 16 bytes per document."""

    ids: np.ndarray
    values: np.ndarray

    @classmethod
    def of_ids(cls, ids: np.ndarray, values: np.ndarray) -> DocumentKeys:
        """Build keys from hashes of ids in any order. Of a repeated id, the first value counts."""
        ids, first = np.unique(ids, return_index=True)
        return cls(ids, values[first])

    def of(self, ids: pa.ChunkedArray) -> np.ndarray:
        """Return uint64[rows]: the key of each id, or the id's hash if it has no key."""
        drawn = keys(ids)
        if len(self.ids):
            at = np.minimum(np.searchsorted(self.ids, drawn), len(self.ids) - 1)
            drawn = np.where(self.ids[at] == drawn, self.values[at], drawn)
        return drawn

    @property
    def digest(self) -> str:
        """Return a hash of all keys."""
        return xxhash.xxh3_128_hexdigest(self.ids.tobytes() + self.values.tobytes())


def _buckets(file: pa.ipc.RecordBatchFileReader) -> np.ndarray:
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    buckets = [batch["key"][0].as_py() >> (64 - _BITS) for batch in batches]
    return np.array(buckets, np.int64)


@dataclass(frozen=True)
class Spilled(Message):
    """The saved state of a shuffle: the number of tokens and of table files written so far."""

    written: int = 0
    tables: int = 0


class Shuffle:
    """Sorts documents on disk: call `add` for documents, then `close`, then read `documents` once.
    before: a state that `checkpoint` returned, or None; folder: an empty folder or, with `before`,
    that state's folder; the caller removes it. order: keys to sort by; None: hashes of the ids."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        dtype: np.dtype,
        masked: bool = False,
        before: Spilled | None = None,
        run_tokens: int = RUN_TOKENS,
        order: DocumentKeys | None = None,
    ) -> None:
        self._run_tokens = run_tokens
        self.folder, self.seed, self.dtype, self.order = folder, seed, dtype, order
        folder.mkdir(exist_ok=True)
        before = before or Spilled()
        self._written, self._closed = before.written, before.tables
        self._tokens = open_at(folder / "tokens", self._written * dtype.itemsize)
        self._mask = open_at(folder / "mask", self._written) if masked else None
        self._tables: pa.ipc.RecordBatchFileWriter | None = None
        self._pending: list[Encoded] = []
        self._waiting = self._documents = 0

    def add(self, documents: Encoded) -> None:
        if len(documents.tokens) >= self._run_tokens:
            self._spill()  # so a long document is not copied together with others
        self._pending.append(documents)
        self._waiting += len(documents.tokens)
        self._documents += len(documents)
        if self._waiting >= self._run_tokens or self._documents >= _RUN_DOCUMENTS:
            self._spill()

    def checkpoint(self) -> tuple[Spilled, list[Path]]:
        self._spill()
        self._close_tables()
        files = [file for file in (self._tokens, self._mask) if file is not None]
        for file in files:
            sync_open(file)
        paths = [Path(file.name) for file in files]
        paths += [self._path(number) for number in range(self._closed)]
        if self._closed:
            sync_path(paths[-1])
        return Spilled(self._written, self._closed), paths

    def close(self) -> None:
        """Finish adding documents."""
        self._spill()
        self._tokens.close()
        if self._mask is not None:
            self._mask.close()
        self._close_tables()

    def _path(self, number: int) -> Path:
        return self.folder / f"tables-{number}"

    def _close_tables(self) -> None:
        if self._tables is not None:
            self._tables.close()
            self._tables, self._closed = None, self._closed + 1

    def _spill(self) -> None:
        if not self._documents:
            return
        run = concatenate(self._pending)
        self._pending, self._waiting, self._documents = [], 0, 0
        ids = run.table["id"]
        key = keys(ids, self.seed) if self.order is None else self.order.of(ids)
        buckets = (key >> np.uint64(64 - _BITS)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        run = run.select(order)
        lengths = run.lengths
        starts = self._written + np.cumsum(lengths) - lengths
        table = run.table.append_column("key", pa.array(key[order]))
        table = table.append_column("start", pa.array(starts)).combine_chunks()
        bounds = np.searchsorted(buckets[order], np.arange((1 << _BITS) + 1))
        if self._tables is None:
            self._tables = pa.ipc.new_file(str(self._path(self._closed)), _SPILLED)
        for bucket in range(1 << _BITS):
            first, last = int(bounds[bucket]), int(bounds[bucket + 1])
            if last > first:
                for batch in table.slice(first, last - first).to_batches():
                    self._tables.write_batch(batch)
        self._tokens.write(run.tokens.data)
        if self._mask is not None and run.mask is not None:
            self._mask.write(run.mask.data)
        self._written += len(run.tokens)

    def documents(self) -> Iterator[Encoded]:
        """Yield all documents in their new order, a few million tokens at a time."""
        with ExitStack() as stack:
            files = [
                pa.ipc.open_file(stack.enter_context(pa.memory_map(str(self._path(number)))))
                for number in range(self._closed)
            ]
            numbers = [_buckets(file) for file in files]
            for bucket in range(1 << _BITS):
                batches = [
                    file.get_batch(int(position))
                    for file, buckets in zip(files, numbers, strict=True)
                    for position in np.flatnonzero(buckets == bucket)
                ]
                if batches:
                    yield from self._bucket(pa.Table.from_batches(batches))

    def _bucket(self, table: pa.Table) -> Iterator[Encoded]:
        table = table.take(np.argsort(table["key"].to_numpy(), kind="stable"))
        starts, lengths = table["start"].to_numpy(), table["tokens"].to_numpy()
        table = table.select(DOCUMENTS.names).combine_chunks()
        # Mapped again for each bucket, to free the pages of the last one. An empty file cannot be
        # mapped.
        path = self.folder / "tokens"
        data = np.memmap(path, self.dtype, "r") if self._written else np.empty(0, self.dtype)
        marks = None
        if self._mask is not None:
            marks = np.memmap(self.folder / "mask", np.uint8, "r") if self._written else data
        pieces = np.cumsum(lengths) // self._run_tokens
        for piece in np.unique(pieces):
            rows = np.flatnonzero(pieces == piece)
            first, last = int(rows[0]), int(rows[-1]) + 1
            where = (starts[first:last], lengths[first:last])
            mask = None if marks is None else gather(marks, *where).astype(np.uint8)
            yield Encoded(gather(data, *where), table.slice(first, last - first), mask)
