"""A run's columns read while the command's own libraries load, which takes as long.

Which columns are asked for is known only when the recipe's steps are: so all numbers of steps are
read, if they are not too many. Imports no more than that needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.documents.rejected import REASONS, is_rejected_file, rejected_files
from llmcurate.base.disk.files import part_files

THREADS = min(4, os.cpu_count() or 1)  # for decompression; memory is a file's columns a thread
MOST_COLUMNS = 48
# Python values to Arrow, and `to_numpy`, import pandas where it is installed; a thread that imports
# may wait for ever for one that loads numba, and that one for it.
NAN = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(np.full(1, np.nan))])[0]


class Reading:
    """Columns on their way into arrays. paths: files of kept documents, then of rejected ones;
    numbers: name -> float64[rows], NaN where nothing was measured."""

    def __init__(self, kept: list[Path], gone: list[Path], columns: Iterable[str]) -> None:
        self.paths = [*kept, *gone]
        rows = [pq.read_metadata(p).num_rows for p in self.paths]
        self.starts = np.concatenate(([0], np.cumsum(rows)))
        self.numbers = {name: np.empty(int(self.starts[-1]), np.float64) for name in columns}
        self.pool = ThreadPoolExecutor(THREADS)
        self._fills: list[Future[pa.Table]] = [
            self.pool.submit(self._fill, path, slice(a, z), is_rejected_file(path))
            for path, (a, z) in zip(self.paths, pairwise(self.starts.tolist()), strict=True)
        ]

    def tables(self) -> list[pa.Table]:
        """What else was read of each file, when all is."""
        return [f.result() for f in self._fills]

    def close(self) -> None:
        """Ends it, read or not."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _fill(self, path: Path, rows: slice, gone: bool) -> pa.Table:
        """Puts a file's numbers into their rows; returns what else is asked of it."""
        with pq.ParquetFile(path) as file:
            have = set(file.schema_arrow.names)
            others = [n for n in ("lang", REASONS) if n in have and (gone or n == "lang")]
            columns_read = [*(n for n in self.numbers if n in have), *others]
            table = file.read(columns=columns_read, use_threads=False)
        for name, array in self.numbers.items():
            at = rows.start
            if name not in have:
                array[rows] = np.nan
                continue
            for chunk in table[name].chunks:
                values = pc.fill_null(pc.cast(chunk, pa.float64()), NAN)
                array[at : at + len(chunk)] = np.from_dlpack(values)
                at += len(chunk)
        return table.select(others)


def start(out: Path, most_columns: int = MOST_COLUMNS) -> Reading | None:
    """Begins to read a run's folder; None where that is no run, or has more columns."""
    kept = part_files(out / "corpus")
    gone = rejected_files(out)
    try:
        schema = pq.read_schema(gone[-1])
        names = [
            f.name
            for f in schema
            if "." in f.name and (pa.types.is_integer(f.type) or pa.types.is_floating(f.type))
        ]
        return Reading(kept, gone, names) if kept and len(names) <= most_columns else None
    except (IndexError, OSError, pa.ArrowInvalid):
        return None  # whoever reads it next says what is wrong
