"""Candidates: the documents that share a key with another, a bit each, and their sketches.

The number of bits before a document's is its number c among the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus.shuffle.tasks import Group
from curate.corpus.sketches import SketchFile, Task, sketch_batches
from llmcurate.base.kernels import njit

BITS = "candidates.bits"


@njit(nogil=True)
def popcount(word):
    """How many bits of a uint64 are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(nogil=True)
def number_of(d, bits, before):
    """How many bits are set before bit number d. before: what `ones_before` counts."""
    below = (np.uint64(1) << np.uint64(d & np.uint32(63))) - np.uint64(1)
    w = d >> np.uint32(6)
    return np.int64(before[w]) + popcount(bits[w] & below)


@njit(cache=True, nogil=True)
def ones_before(bits):
    """uint32[words + 1]: how many bits are set before each word of 64."""
    out = np.empty(len(bits) + 1, np.uint32)
    total = np.int64(0)
    for w in range(len(bits)):
        out[w] = total
        total += popcount(bits[w])
    out[len(bits)] = total
    return out


@njit(cache=True, nogil=True)
def set_bits(bits, first, stop):
    """int64: which of the bits from `first` to `stop` are set, counted from `first`."""
    out = np.empty(stop - first, np.int64)
    count = 0
    for i in range(first, stop):
        if bits[i >> 6] >> np.uint64(i & 63) & np.uint64(1):
            out[count] = i - first
            count += 1
    return out[:count].copy()


def read_bits(path: Path, first: int, rows: int) -> tuple[np.ndarray, int]:
    """(uint64 bits from the file, of which number `first` of all is number): those of so many
    documents and a few beside them; one range is read."""
    word = first // 64
    count = (first + rows) // 64 + 1 - word
    return np.fromfile(path, np.uint64, count, offset=8 * word), first - 64 * word


def candidate_batches(
    files: Sequence[SketchFile], columns: list[str], bits: np.ndarray, first: int, rows: int
) -> Iterator[pa.RecordBatch]:
    """The sketches of candidates in order of (part, n), as `sketch_batches` gives them. first: the
    bit of the first sketch."""
    for batch in sketch_batches(files, columns, rows):
        chosen = set_bits(bits, first, first + len(batch))
        first += len(batch)
        if len(chosen):
            yield batch if len(chosen) == len(batch) else batch.take(pa.array(chosen))


@dataclass(frozen=True)
class CandidateTask:
    """A task on a group's candidates. bits: the file of all; before: how many come before them."""

    group: Group
    bits: Path
    before: int
    folder: Path

    @classmethod
    def load(cls, task: Task) -> CandidateTask:
        """What a task of `candidate_tasks` says."""
        return cls(Group.load(task), Path(task["bits"]), task["before"], Path(task["folder"]))

    def schema(self, columns: list[str]) -> pa.Schema:
        """Of what `batches` gives."""
        sketches = pq.read_schema(self.group.files[0].path)
        fields = [sketches.field(name) for name in columns]
        number, name = sketches.field("n"), pa.field("id", pa.string())
        return pa.schema([*fields, pa.field("part", pa.int32()), number, name])

    def batches(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """The sketches of its candidates, as `sketch_batches` gives them of `rows` sketches."""
        bits, first = read_bits(self.bits, self.group.first, self.group.rows)
        yield from candidate_batches(self.group.files, columns, bits, first, rows)


def candidate_tasks(groups: list[Group], bits: Path, folder: Path, **settings: Any) -> list[Task]:
    """A task a group, on its candidates, which writes into `folder`. bits: the folder of the phase
    that wrote their bits; settings: further keys of the task."""
    path = bits / BITS
    all_bits = np.fromfile(path, np.uint64)
    before = ones_before(all_bits)
    tasks = []
    for group in groups:
        word = group.first // 64
        count = int(before[word]) + len(set_bits(all_bits, 64 * word, group.first))
        paths = {"bits": str(path), "before": count, "folder": str(folder)}
        tasks.append({**group.dump(), **paths, **settings})
    return tasks
