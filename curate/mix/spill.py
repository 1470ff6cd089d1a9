"""Rows on disk by part of the mix: sorted some at a time, collected part by part afterwards.

One file of Arrow messages; memory holds the rows of one run, and where each stretch lies.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.errors import name_file


class Spill:
    """`add` rows with their part, `close`, then `rows` of any part, from any thread."""

    def __init__(self, path: Path, parts: int, run_bytes: int) -> None:
        self.path, self.parts, self.run_bytes = path, parts, run_bytes
        self._file = open(path, "wb")  # noqa: SIM115 (closed by `close`)
        self._waiting: list[pa.Table] = []
        self._part: list[np.ndarray] = []
        self._bytes = 0
        self._places: list[tuple[int, int, int]] = []  # part, offset, length
        self._at = 0
        self.schema: pa.Schema | None = None
        self._by_part: dict[int, list[tuple[int, int]]] = {}
        self._reader = -1

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
        table = pa.concat_tables(self._waiting)
        self._waiting, self._part, self._bytes = [], [], 0
        table = table.combine_chunks().take(order)
        bounds = np.searchsorted(part[order], np.arange(self.parts + 1))
        try:
            for number in np.flatnonzero(np.diff(bounds)).tolist():
                first, last = int(bounds[number]), int(bounds[number + 1])
                for batch in table.slice(first, last - first).to_batches():
                    message = batch.serialize()
                    self._file.write(message)
                    self._places.append((number, self._at, message.size))
                    self._at += message.size
        except OSError as error:
            name_file(error, self.path)
            raise

    def close(self) -> None:
        """Nothing more comes."""
        self._flush()
        self._file.close()
        for part, offset, size in self._places:
            self._by_part.setdefault(part, []).append((offset, size))
        self._places = []
        self._reader = os.open(self.path, os.O_RDONLY)

    def rows(self, part: int) -> pa.Table:
        """The rows of a part, in the order in which they were added."""
        batches = []
        for offset, size in self._by_part.get(part, []):
            data = pa.py_buffer(os.pread(self._reader, size, offset))
            batches.append(pa.ipc.read_record_batch(data, self.schema))
        return pa.Table.from_batches(batches, self.schema)

    def remove(self) -> None:
        """Frees the disk."""
        self._file.close()
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
        self.path.unlink(missing_ok=True)
