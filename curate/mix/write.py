"""The mix as a corpus: its parts in order, out of core, the same bytes for any number of workers.

The sources are read a second time; every copy of a document goes to disk with its position, and
each part of the mix is then ordered and written by itself. What is in memory is a run of rows, and
a part for each worker.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.assemble import file_record
from curate.errors import RunFailed
from curate.mix.choose import Chosen, Taking, last_keys
from curate.mix.measure import base_keys
from curate.mix.order import keys, positions
from curate.mix.sources import EPOCH, SOURCE, Source
from curate.mix.spill import Spill
from curate.mix.strata import Strata
from curate.table_writer import writing

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


@dataclass
class Written:
    """files: as a manifest has them; copies: int64[strata], documents written."""

    files: list[dict[str, Any]]
    copies: np.ndarray


def write_mix(
    sources: list[Source],
    strata: Strata,
    chosen: Chosen,
    seed: int,
    layout: Layout,
    folder: Path,
    progress: Callable[[int], None] = lambda documents: None,
) -> Written:
    """Writes FOLDER/part-*.parquet. RunFailed where a source is not what it was when measured."""
    scratch = folder.with_name(f".spill-{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    spill = Spill(scratch / "rows", layout.parts, layout.part_bytes)
    try:
        copies = _spread(sources, strata, chosen, seed, layout.parts, spill, progress)
        spill.close()
        threads = max(1, min(layout.workers, layout.parts, MOST_THREADS))
        with ThreadPoolExecutor(threads) as pool:
            files = list(
                pool.map(lambda part: _write_part(spill, part, folder), range(layout.parts))
            )
    finally:
        spill.remove()
        shutil.rmtree(scratch, ignore_errors=True)
    return Written(files, copies)


def _spread(
    sources: list[Source],
    strata: Strata,
    chosen: Chosen,
    seed: int,
    parts: int,
    spill: Spill,
    progress: Callable[[int], None],
) -> np.ndarray:
    """Gives every copy of a document its position and puts it on disk."""
    many = len(strata.keys)
    copies = np.zeros(many, np.int64)
    strata.begin()
    taking, epochs = Taking(chosen), chosen.epochs
    for source in sources:
        for batch in source.read():
            if not batch.num_rows:
                continue
            number = strata.of(source.name, batch)
            if len(strata.keys) > many:
                raise RunFailed(f"mix: {source.name} has changed while it was read; run again")
            rows, epoch, place = _copies(
                number, base_keys(source, batch, seed), chosen, taking, epochs
            )
            np.add.at(copies, number[rows], 1)
            table = pa.Table.from_batches([batch])
            if not np.array_equal(rows, np.arange(batch.num_rows)):
                table = table.take(rows)
            for name, values in (
                (SOURCE, pa.repeat(source.name, len(rows))),
                (EPOCH, pa.array(epoch, pa.int32())),
                (POSITION, pa.array(place, pa.float64())),
            ):
                table = table.append_column(name, values)
            spill.add(table, (place * parts).astype(np.int64))
            progress(len(rows))
    return copies


def _copies(
    number: np.ndarray, base: np.ndarray, chosen: Chosen, taking: Taking, epochs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, epoch, position) of every copy of a batch's documents."""
    inside = np.flatnonzero(number >= 0)
    stratum = number[inside]
    full, found = chosen.full[stratum], []
    for epoch in range(int(full.max(initial=0))):
        mine = full > epoch
        key = keys(base[inside[mine]], epoch)
        found.append((inside[mine], epoch, positions(key, epoch, epochs[stratum[mine]])))
    if len(inside):
        key = last_keys(base[inside], full)
        taken = taking.last(stratum, key)
        for epoch in np.unique(full[taken]).tolist():
            mine = taken & (full == epoch)
            found.append((inside[mine], epoch, positions(key[mine], epoch, epochs[stratum[mine]])))
    rows = np.concatenate([np.empty(0, np.int64), *(r for r, _, _ in found)])
    times = [np.empty(0, np.int32), *(np.full(len(r), e, np.int32) for r, e, _ in found)]
    return rows, np.concatenate(times), np.concatenate([np.empty(0), *(p for _, _, p in found)])


def _write_part(spill: Spill, part: int, folder: Path) -> dict[str, Any]:
    """A part of the mix in order; equal positions stay in the order of reading."""
    target = folder / f"part-{part:05d}.parquet"
    size = 0
    with writing(target) as writer:
        if spill.schema is None:
            return {}
        table = spill.rows(part)
        order = np.argsort(table[POSITION].to_numpy(), kind="stable")
        table = table.drop_columns([POSITION]).combine_chunks()
        writer.write(table.schema.empty_table())
        length = pc.fill_null(pc.binary_length(table["text"]), 0).to_numpy()[order]
        cuts = np.flatnonzero(np.diff(np.cumsum(length) // SLICE)) + 1
        for rows in np.split(order, cuts):
            writer.write(table.take(rows))
        size = int(length.sum())
    return {"name": target.name, "text_bytes": size, **file_record(target)}
