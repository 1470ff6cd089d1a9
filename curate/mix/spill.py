"""Rows on disk by part of the mix: sorted some at a time, collected part by part afterwards.

One file of Arrow messages; memory holds the rows of one run, and where each stretch lies.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.mix.scratch import Scratch


class Spill:
    """`add` rows with their part, `close`, then `rows` of any part, from any thread."""

    def __init__(self, path: Path, parts: int, run_bytes: int) -> None:
        self.parts, self.run_bytes = parts, run_bytes
        self._file = Scratch(path)
        self._waiting: list[pa.Table] = []
        self._part: list[np.ndarray] = []
        self._bytes = 0
        self.schema: pa.Schema | None = None
        self._places: dict[int, list[tuple[int, int]]] = {}  # part: offset and size of messages

    def add(self, table: pa.Table, part: np.ndarray) -> None:
        """part: int64[rows]."""
        self.schema = self.schema or table.schema
        self._waiting.append(table)
        self._part.append(part)
        self._bytes += table.nbytes
        if self._bytes >= self.run_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        part = np.concatenate(self._part)
        order = np.argsort(part, kind="stable")
        table = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting, self._part, self._bytes = [], [], 0
        bounds = np.searchsorted(part[order], np.arange(self.parts + 1))
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            rows = table.take(order[bounds[number] : bounds[number + 1]])
            for batch in rows.to_batches():
                message = memoryview(batch.serialize())
                at = self._file.append(message)
                self._places.setdefault(number, []).append((at, len(message)))

    def close(self) -> None:
        """Nothing more comes."""
        self._flush()
        self._file.close()

    def rows(self, part: int) -> pa.Table:
        """The rows of a part, in the order in which they were added. They hold until this thread
        asks for another part."""
        found = self._file.read(self._places.get(part, []))
        batches = [pa.ipc.read_record_batch(pa.py_buffer(data), self.schema) for data in found]
        return pa.Table.from_batches(batches, self.schema)

    def remove(self) -> None:
        """Frees the disk."""
        self._file.remove()
