"""What is cut of each document of a group, from the answers to what the group said of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.decision_pieces import COLUMNS, ROWS, piece_files, write_piece
from curate.dedup.passages.owners import owner_files
from curate.dedup.passages.rows import member_files
from curate.dedup.shuffle.groups import Group
from curate.dedup.shuffle.slices import read_slice
from curate.sketches import Task, sketch_batches

# local: whether all copies are in one document, or the copy that stays is in the same one.
DECISIONS = pa.schema([*COLUMNS, ("local", pa.bool_())])


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
    cut: list[int] = []
    write_piece(path, DECISIONS, _decisions(task, group, table, before, cut))
    return {"cut": sum(cut)}


def bytes_under(document: np.ndarray, a: np.ndarray, z: np.ndarray, last: int) -> tuple[int, int]:
    """(bytes that lie in one of the spans, what to give as `last` with the spans that follow).
    Spans are ordered by document, then a; those of a document may overlap. last: 0 at first."""
    doc, begin, end = (array.astype(np.int64) for array in (document, a, z))
    ends = np.maximum.accumulate(np.concatenate([[last], (doc << 32) | end]))
    seen = np.where(ends[:-1] >> 32 == doc, ends[:-1] & 0xFFFFFFFF, 0)
    return int(np.maximum(end - np.maximum(begin, seen), 0).sum()), int(ends[-1])


def _decisions(
    task: Task, group: Group, answers: pa.Table, before: np.ndarray, cut: list[int]
) -> Iterator[pa.RecordBatch]:
    """Batches of decisions; `cut` is given the bytes that go of this run's documents."""
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
    last = 0
    for begin in range(0, len(mine), ROWS):
        at = mine[begin : begin + ROWS]
        k, where = key[at], document[at]
        keeper = here[k] & (where == document[firsts[k]])
        gone = lost[k] | ~(here[k] & (at == firsts[k]))
        counted = gone & (part[where] >= 0)  # not those of earlier corpora
        size, last = bytes_under(where[counted], a[at][counted], z[at][counted], last)
        cut.append(size)
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
