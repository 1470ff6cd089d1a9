"""What is cut of each document of a group, from the answers to what the group said of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.atomic import replacing
from curate.dedup.passages.owners import owner_files
from curate.dedup.passages.rows import member_files
from curate.dedup.shuffle.groups import Group
from curate.dedup.shuffle.slices import read_slice
from curate.sketches import Task, sketch_batches

BATCH = 100_000  # rows that are made at once

DECISIONS = pa.schema(
    [
        ("part", pa.int32()),
        ("n", pa.int64()),
        ("drop", pa.bool_()),
        ("id", pa.string()),
        ("cluster", pa.int64()),
        ("kept_id", pa.string()),
        ("partner_id", pa.string()),
        ("similarity", pa.float64()),
        ("method", pa.string()),
        ("span_start", pa.int64()),
        ("span_end", pa.int64()),
        # Whether all copies are in one document, or the copy that stays is in the same one.
        ("local", pa.bool_()),
    ]
)


def piece_files(folder: Path, count: int) -> list[Path]:
    """The decisions on each of so many groups, in order."""
    return [folder / f"decisions-{part:05d}.arrow" for part in range(count)]


def write_pieces_files(task: Task) -> dict[str, list[str]]:
    """What `write_pieces` reads (a record batch of each answer) and writes."""
    group = Group.load(task)
    reads = [*group.reads(), *map(str, member_files(Path(task["rows"]), group.part))]
    reads += map(str, owner_files(Path(task["owners"]), len(task["clusters"])))
    written = piece_files(Path(task["folder"]), group.part + 1)[-1]
    return {"reads": reads, "writes": [str(written)]}


def write_pieces(task: Task) -> dict[str, Any]:
    """A task: the decisions on a group's passages, ordered by document and byte. Held are the
    answers, the group's ids and 30 bytes a passage."""
    group = Group.load(task)
    answers = [*read_slice(owner_files(Path(task["owners"]), len(task["clusters"])), group.part)]
    # Clusters of a slice come behind those of the slices before it.
    before = np.repeat(task["clusters"], [len(batch) for batch in answers])
    table = pa.Table.from_batches(answers).combine_chunks()
    path = piece_files(Path(task["folder"]), group.part + 1)[-1]
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        replacing(path) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, DECISIONS, options=options) as writer,
    ):
        for batch in _decisions(task, group, table, before):
            writer.write_batch(batch)
    return {}


def _decisions(
    task: Task, group: Group, answers: pa.Table, before: np.ndarray
) -> Iterator[pa.RecordBatch]:
    members, firsts = (np.load(path) for path in member_files(Path(task["rows"]), group.part))
    document, a, z, key = members
    shared = answers["cluster"].is_valid().to_numpy()
    mine = np.flatnonzero(shared[key])
    if not len(mine):
        return
    cluster = answers["cluster"].fill_null(0).to_numpy() + before
    lost, here = (answers[name].to_numpy() for name in ("lost", "here"))
    owner, other = (answers[name].chunk(0) for name in ("owner", "other"))
    names = pa.concat_arrays([owner, other])
    batches = [*sketch_batches(group.files, [])]
    sketches = pa.Table.from_batches(batches).combine_chunks()
    ids = sketches["id"].chunk(0)
    part, n = (sketches[name].to_numpy() for name in ("part", "n"))
    for begin in range(0, len(mine), BATCH):
        at = mine[begin : begin + BATCH]
        k, where = key[at], document[at]
        keeper = here[k] & (where == document[firsts[k]])
        gone = lost[k] | ~(here[k] & (at == firsts[k]))
        # The partner of a copy is the document preferred most; of that one, where it loses its
        # copies too, the one preferred least.
        partner = np.where(keeper & lost[k], len(owner) + k.astype(np.int64), k)
        columns = [
            pa.array(part[where], pa.int32()),
            pa.array(n[where], pa.int64()),
            pa.array(gone),
            ids.take(pa.array(where)),
            pa.array(cluster[k]),
            names.take(pa.array(partner, mask=lost[k])),
            names.take(pa.array(partner, mask=~gone)),
            pa.array(np.ones(len(at)), mask=~gone),
            pa.repeat(pa.scalar(task["method"]), len(at)),
            pa.array(a[at].astype(np.int64)),
            pa.array(z[at].astype(np.int64)),
            pa.array(keeper & ~lost[k]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=DECISIONS)
