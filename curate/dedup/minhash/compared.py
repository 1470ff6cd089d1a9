"""What candidates are compared by, made out of sketches and cut by the part that compares them.

Sets of shingles out of texts, or packed signatures as they are. A task is about a group of sketch
files; it holds some TEXTS texts, and a segment of what it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.atomic import replacing
from curate.dedup.minhash.parts import BEGINS, PLACES, parts_of
from curate.dedup.minhash.text import shingle_sets
from curate.dedup.shuffle.byte_rows import SliceFiles, SliceWriter
from curate.dedup.shuffle.candidates import Picked
from curate.dedup.shuffle.keys import fixed_rows
from curate.sketches import Task
from curate.text.buffers import as_large_string

KIND = "compared"
COLUMNS = 2  # of its rows: the place of a candidate, how many bytes it has
TEXTS = 1000  # documents whose shingles are made at once
SIGNATURES = 20_000  # signatures that are read at once

# (offsets, bytes) of the rows of a column of sketches.
Make = Callable[[pa.Array], tuple[np.ndarray, np.ndarray]]


def _files(task: Task) -> dict[str, list[str]]:
    mine, ordered = Picked.load(task), Path(task["ordered"])
    reads = [*mine.reads(), str(ordered / PLACES), str(ordered / BEGINS)]
    return {"reads": reads, "writes": [str(path) for path in _written(mine)]}


def _written(mine: Picked) -> SliceFiles:
    return SliceFiles.within(mine.folder, KIND, mine.group.part)


def _write(task: Task, column: str, rows: int, make: Make) -> dict[str, Any]:
    mine, ordered = Picked.load(task), Path(task["ordered"])
    begins = np.fromfile(ordered / BEGINS, np.int64)
    with ExitStack() as stack:
        places = stack.enter_context((ordered / PLACES).open("rb"))
        places.seek(4 * mine.before)
        files = SliceFiles(*(stack.enter_context(replacing(path)) for path in _written(mine)))
        writer = SliceWriter(files, len(begins) - 1)
        for batch in mine.batches([column], rows):
            place = np.fromfile(places, np.uint32, len(batch))
            offsets, data = make(batch.column(0))
            told = np.empty((len(batch), COLUMNS), np.uint32)
            told[:, 0], told[:, 1] = place, np.diff(offsets)
            writer.add(parts_of(place, begins), told, offsets, data)
        writer.close()
    return {}


def shingle_group_files(task: Task) -> dict[str, list[str]]:
    """What `shingle_group` reads (of places a range) and writes."""
    return _files(task)


def shingle_group(task: Task) -> dict[str, Any]:
    """A task: the sets of shingles, uint64, of a group's candidates."""
    how = {name: task[name] for name in ("normalize", "unit", "size")}

    def make(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        offsets, values = shingle_sets(as_large_string(column), **how)
        return 8 * offsets, values.view(np.uint8)

    return _write(task, "text", TEXTS, make)


def sign_group_files(task: Task) -> dict[str, list[str]]:
    """What `sign_group` reads (of places a range) and writes."""
    return _files(task)


def sign_group(task: Task) -> dict[str, Any]:
    """A task: the packed signatures of a group's candidates, out of their sketches."""

    def make(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        rows = fixed_rows(column, np.uint8)
        width = rows.shape[1]
        return np.arange(len(rows) + 1, dtype=np.int64) * width, rows.reshape(-1)

    return _write(task, "signature", SIGNATURES, make)
