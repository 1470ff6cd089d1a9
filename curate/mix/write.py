"""The mix as a corpus: its parts in order, out of core, the same bytes for any number of workers.

The documents lie on disk since they were measured, decoded. From there every copy of a document
goes to disk with its position, and each part of the mix is then ordered and written by itself. In
memory is a run of rows, and a part for each worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.corpus.manifests import ids_hash
from curate.mix.measure import Measured, Rows
from curate.mix.order import Chosen, Taking, keys, last_keys, positions
from curate.mix.sources import EPOCH
from curate.mix.spill import Copy, Hashed, Spill
from llmcurate.base.disk.parquet_writer import writing
from llmcurate.base.disk.process import Threads
from llmcurate.base.disk.safe_paths import remove

POSITION = "_position"
SLICE = 16 << 20  # bytes of text that are put in order at once: a row group
MOST_THREADS = 8  # each holds a part


@dataclass
class Layout:
    """part_bytes: text of a part, about; total: bytes of text of the whole mix, about; workers:
    threads that write."""

    part_bytes: int
    total: int
    workers: int = 1

    @property
    def parts(self) -> int:
        return max(1, -(-self.total // self.part_bytes))


def write_mix(
    copy: Copy, measured: Measured, chosen: Chosen, layout: Layout, folder: Path
) -> list[dict[str, Any]]:
    """Writes FOLDER/part-*.parquet; returns the files as a manifest has them. The copy of the
    documents that were measured is used up."""
    scratch = folder.with_name(f".spill-{folder.name}")
    remove(scratch, inside=folder.parent)
    scratch.mkdir(parents=True)
    spill = Spill(scratch / "mix")
    try:
        _spread(copy, measured, chosen, layout, spill)
        copy.remove()
        spill.close()
        threads = max(1, min(layout.workers, layout.parts, MOST_THREADS))
        with Threads(threads) as pool:
            parts = range(layout.parts)
            return list(pool.map(lambda part: _write_part(spill, part, folder), parts))
    finally:
        spill.remove()
        remove(scratch, inside=folder.parent)


def _spread(copy: Copy, measured: Measured, chosen: Chosen, layout: Layout, spill: Spill) -> None:
    """Gives every copy of a document its position and puts it on disk, part by part."""
    taking, epochs = Taking(chosen), chosen.epochs
    measured_rows = Rows(measured.rows("stratum", "key"))
    for run in copy.runs(layout.part_bytes):
        number, key = measured_rows.take(len(run.position))
        rows, epoch, position = _copies(number, key, chosen, taking, epochs)
        part = (position * layout.parts).astype(np.int64)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(layout.parts + 1))
        for to in np.flatnonzero(np.diff(bounds)).tolist():
            of_part = order[bounds[to] : bounds[to + 1]]
            table = run.take(rows[of_part])
            table = table.append_column(EPOCH, pa.array(epoch[of_part], pa.int32()))
            spill.add(to, table.append_column(POSITION, pa.array(position[of_part])))


def _copies(
    number: np.ndarray, base: np.ndarray, chosen: Chosen, taking: Taking, epochs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, epoch, position) of every copy of documents of those strata and keys."""
    full, copies = chosen.full[number], []
    for epoch in range(int(full.max(initial=0))):
        rows_of_epoch = np.flatnonzero(full > epoch)
        position = positions(keys(base[rows_of_epoch], epoch), epoch, epochs[number[rows_of_epoch]])
        copies.append((rows_of_epoch, epoch, position))
    key = last_keys(base, full)
    taken = taking.last(number, key)
    for epoch in np.unique(full[taken]).tolist():
        rows_of_epoch = np.flatnonzero(taken & (full == epoch))
        copies.append(
            (
                rows_of_epoch,
                epoch,
                positions(key[rows_of_epoch], epoch, epochs[number[rows_of_epoch]]),
            )
        )
    rows = np.concatenate([np.empty(0, np.int64), *(r for r, _, _ in copies)])
    times = [np.empty(0, np.int32), *(np.full(len(r), e, np.int32) for r, e, _ in copies)]
    return rows, np.concatenate(times), np.concatenate([np.empty(0), *(p for _, _, p in copies)])


def _write_part(spill: Spill, part: int, folder: Path) -> dict[str, Any]:
    """A part of the mix in order; equal positions stay in the order of reading."""
    target = folder / f"part-{part:05d}.parquet"
    rows_of_part, size, ids = spill.rows(part), 0, []
    with writing(target, Hashed) as writer:
        writer.write(spill.empty().drop_columns([POSITION]))
        if rows_of_part is not None:
            order = np.argsort(rows_of_part.rest[POSITION].to_numpy(), kind="stable")
            length = rows_of_part.rest["text"].to_numpy()[order]
            cuts = np.flatnonzero(np.diff(np.cumsum(length) // SLICE)) + 1
            for rows in np.split(order, cuts):
                writer.write(rows_of_part.take(rows).drop_columns([POSITION]))
            size, ids = int(length.sum()), [rows_of_part.rest["id"]]
    return {
        "name": target.name,
        "text_bytes": size,
        "documents": writer.rows,
        "sha256": writer.sink.sha256.hexdigest(),
        "ids": ids_hash(ids),
    }
