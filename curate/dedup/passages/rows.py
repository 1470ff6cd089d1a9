"""Rows of a group of sketch files: how often it has each key, and in which document it prefers it.

Of all copies in a group one row goes to where the key is decided (resolve.py), of the document
preferred most; where no copy may stay in the end a second one, of that preferred least. So a slice
of keys has one row for a group however frequent a line is. The copies themselves stay in files that
the group's next task reads (resolve.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.shuffle.partitions import sort_pairs
from curate.corpus.shuffle.tasks import Group, write_slices
from curate.corpus.sketches import Task, sketch_batches
from curate.dedup import survivors
from curate.dedup.passages.keys import unpacked
from curate.dedup.passages.shared import shared_files, shared_of
from llmcurate.base.disk.database import scratch_database
from llmcurate.base.disk.files import replacing, temporary_name
from llmcurate.base.kernels import njit

SORT_MEMORY = "512MB"


@njit(cache=True, nogil=True)
def preferred(order, low, high, preference, copies, run_of, first, last, total):
    """The number of runs of equal keys; keys ascend in `order`: uint32[rows].

    low, high: uint64[rows]; preference: uint64[rows], the least is preferred; copies: int64[rows]
    that a row stands for. Filled are run_of: uint32[rows], and by run first, last: uint32,
    its rows of the least and of the greatest preference, and total: int64, its copies.
    """
    runs = -1
    before = np.uint32(0)
    for i in range(len(order)):
        r = order[i]
        if i == 0 or low[r] != low[before] or high[r] != high[before]:
            runs += 1
            first[runs] = last[runs] = r
            total[runs] = 0
        elif preference[r] < preference[first[runs]]:
            first[runs] = r
        elif preference[r] > preference[last[runs]]:
            last[runs] = r
        total[runs] += copies[r]
        run_of[r] = runs
        before = r
    return runs + 1


class Runs:
    """The runs of equal keys in their order: run_of: uint32[rows]; first, last: uint32[runs], rows;
    total: int64[runs]."""

    def __init__(
        self, low: np.ndarray, high: np.ndarray, preference: np.ndarray, copies: np.ndarray
    ) -> None:
        rows = len(low)
        self.run_of = np.empty(rows, np.uint32)
        by_run = np.empty(rows, np.uint32), np.empty(rows, np.uint32), np.empty(rows, np.int64)
        order = sorted_rows(low, high)
        count = preferred(order, low, high, preference, copies, self.run_of, *by_run)
        self.first, self.last, self.total = (array[:count] for array in by_run)


def sorted_rows(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """uint32[rows]: the rows by (low, high); equal ones as they are."""
    numbers = np.arange(len(low), dtype=np.uint32)
    keys, order = sort_pairs(low.copy(), numbers, 0, lambda dtype: np.empty(len(low), dtype))
    same = keys[1:] == keys[:-1]
    # Sharing one half and not the other is chance, or made to collide.
    if (same & (high[order[1:]] != high[order[:-1]])).any():
        return np.lexsort((high, low)).astype(np.uint32)
    return order


def ranks(documents: pa.Table, policy: str, folder: Path) -> np.ndarray:
    """int64[documents]: the position of each in the order of preference, from the columns that the
    policy names and id; equal ones as they are, and so are all with `first`. folder: to spill."""
    count = len(documents)
    if survivors.preference(policy) == survivors.preference("first") or count < 2:
        return np.arange(count)
    rank = np.empty(count, np.int64)
    with scratch_database(folder / temporary_name("spill-ranks")) as db:
        db.execute(f"SET memory_limit = '{SORT_MEMORY}'")
        db.register("documents", documents.append_column("k", pa.array(np.arange(count))))
        order = f"SELECT k FROM documents ORDER BY {survivors.preference(policy)}, k"
        rank[db.execute(order).fetchnumpy()["k"]] = np.arange(count)
    return rank


ROWS = pa.schema(
    [
        ("low", pa.uint64()),
        ("high", pa.uint64()),
        ("document", pa.uint32()),  # its row in the same slice of the documents
        ("copies", pa.int64()),  # 0: a second row
    ]
)


@dataclass(frozen=True)
class Members:
    """A group's passages that may be shared, in order. document: their sketch's number in the
    group; a, z: first and last byte (exclusive); low, high: the key."""

    document: np.ndarray
    a: np.ndarray
    z: np.ndarray
    low: np.ndarray
    high: np.ndarray


def row_files(folder: Path, count: int) -> list[tuple[Path, Path]]:
    """(rows, documents) of each of so many groups, a record batch a slice."""
    return [
        (folder / f"rows-{group:05d}.arrow", folder / f"documents-{group:05d}.arrow")
        for group in range(count)
    ]


def member_files(folder: Path, group: int) -> tuple[Path, Path]:
    """Of a group's passages (uint32[4, passages]: document, a, z, key), and of its keys which of
    these is preferred most (uint32[keys])."""
    return folder / f"members-{group:05d}.npy", folder / f"firsts-{group:05d}.npy"


def distinct(ascending: np.ndarray) -> np.ndarray:
    """Each of the numbers once."""
    return ascending[np.diff(ascending, prepend=-1) != 0]


def slice_of(low: np.ndarray, slices: int) -> np.ndarray:
    """int64: by 32 bits of the key, as a fraction of 2^32, times the slices."""
    high_bits = low >> np.uint64(32)
    return ((high_bits * np.uint64(slices)) >> np.uint64(32)).astype(np.int64)


def write_rows(task: Task) -> dict[str, Any]:
    """A task: a group's keys that may be shared, by slice, and its passages that have them. Held
    are 60 bytes a passage and the documents' columns twice."""
    group, folder = Group.load(task), Path(task["folder"])
    shared = shared_files(Path(task["shared"]), task["pieces"])
    chosen = shared_of(group.part, task["passages"], Path(task["keys"]), shared)
    columns = survivors.preferred_by(task["survivor"])
    members, documents = _members(group, chosen, columns)
    numbers = distinct(members.document)
    rank = ranks(documents, task["survivor"], folder)
    at = np.searchsorted(numbers, members.document)
    # By the document's rank, then by the byte: of a document's own copies the first one.
    preference = (rank[at].astype(np.uint64) << np.uint64(32)) + members.a
    runs = Runs(members.low, members.high, preference, np.ones(len(at), np.int64))
    kept = np.stack([members.document, members.a, members.z, runs.run_of])
    for path, array in zip(member_files(folder, group.part), (kept, runs.first), strict=True):
        with replacing(path, sync=False) as aside, aside.open("wb") as file:
            np.save(file, array)
    sent: np.ndarray = runs.first
    copies: np.ndarray = runs.total
    if task["keep"] == "none":
        both = np.stack([runs.first, runs.last], axis=1).reshape(-1)
        copies = np.stack([copies, np.zeros_like(copies)], axis=1).reshape(-1)
        other = (copies > 0) | (at[both] != at[np.repeat(runs.first, 2)])
        sent, copies = both[other], copies[other]
    _write(task, members, at[sent], sent, copies, documents)
    return {"rows": len(sent)}


def _write(
    task: Task,
    members: Members,
    document: np.ndarray,
    sent: np.ndarray,
    copies: np.ndarray,
    documents: pa.Table,
) -> None:
    """The rows of the members number `sent`, whose keys ascend. document: of `documents`."""
    slices = task["slices"]
    low, high = members.low[sent], members.high[sent]
    ends = np.searchsorted(slice_of(low, slices), np.arange(slices), "right").tolist()
    documents_by_slice: list[np.ndarray] = []

    def rows() -> Iterator[pa.Table]:
        begin = 0
        for end in ends:
            documents_of_slice, row_of_document = np.unique(
                document[begin:end], return_inverse=True
            )
            documents_by_slice.append(documents_of_slice)
            columns = (
                low[begin:end],
                high[begin:end],
                row_of_document.astype(np.uint32),
                copies[begin:end],
            )
            yield pa.table([pa.array(array) for array in columns], schema=ROWS)
            begin = end

    paths = row_files(Path(task["folder"]), task["part"] + 1)[-1]
    write_slices(paths[0], ROWS, rows())
    write_slices(
        paths[1],
        documents.schema,
        (documents.take(pa.array(documents_of_slice)) for documents_of_slice in documents_by_slice),
    )


def _members(group: Group, chosen: np.ndarray, columns: list[str]) -> tuple[Members, pa.Table]:
    """The group's chosen passages, and of the documents that have them the columns and id."""
    columns_of_batches: list[tuple[np.ndarray, ...]] = []
    # Also of a group without any sketch: what reads a slice expects the same columns of all.
    stored = pq.read_schema(group.files[0].path)
    schema = pa.schema([*map(stored.field, columns), pa.field("id", pa.string())])
    documents = [schema.empty_table()]
    passages = sketches = 0
    for batch in sketch_batches(group.files, ["keys", "spans", *columns]):
        keys, rows = unpacked(batch["keys"], np.uint64)
        at = np.flatnonzero(chosen[passages : passages + len(keys)])
        passages += len(keys)
        document_of = np.searchsorted(rows, at, side="right") - 1
        table = pa.Table.from_batches([batch]).select([*columns, "id"])
        documents.append(table.take(pa.array(distinct(document_of))).cast(schema))
        span = unpacked(batch["spans"], np.uint32)[0][at]
        document = (document_of + sketches).astype(np.uint32)
        columns_of_batches.append((document, span[:, 0], span[:, 1], keys[at, 1], keys[at, 0]))
        sketches += len(batch)
    if not columns_of_batches:
        types = (np.uint32, np.uint32, np.uint32, np.uint64, np.uint64)
        columns_of_batches.append(tuple(np.empty(0, kind) for kind in types))
    arrays = (np.concatenate(kind) for kind in zip(*columns_of_batches, strict=True))
    return Members(*arrays), pa.concat_tables(documents).combine_chunks()
