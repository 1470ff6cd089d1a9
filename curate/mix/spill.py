"""Rows on disk by part of the mix: sorted some at a time, collected part by part afterwards.

One file of Arrow messages; memory holds the rows of one run, and where each stretch lies.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.errors import RunFailed, name_file


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

    def rows(self, part: int) -> pa.Table:
        """The rows of a part, in the order in which they were added."""
        batches = []
        with open(self.path, "rb", buffering=0) as file:
            for offset, size in self._by_part.get(part, []):
                file.seek(offset)
                data = file.read(size)
                if len(data) != size:
                    raise RunFailed(f"{self.path} is cut short; run the same command again")
                batches.append(pa.ipc.read_record_batch(pa.py_buffer(data), self.schema))
        return pa.Table.from_batches(batches, self.schema)

    def remove(self) -> None:
        """Frees the disk."""
        self._file.close()
        self.path.unlink(missing_ok=True)
