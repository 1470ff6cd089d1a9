"""The plan of an input: its files, and the partitions that they are cut into.

The plan depends on the input alone: same files, same plan, for any number of workers. A partition
is one slice of a large file (gzip members or zstd frames of an archive, where verified; line
ranges of plain JSON lines; row groups of parquet) or a run of small files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from curate.formats.columns import Columns
from curate.formats.data_sets import Choice
from curate.formats.kinds import FORMATS
from curate.formats.listing import find_files, readable
from curate.formats.partitions import InputFile, Partitions, Slice, map_plan, write_plan
from llmcurate.base.disk.files import text_digest
from llmcurate.base.disk.process import AT_ONCE, in_order
from llmcurate.base.disk.units import counted
from llmcurate.base.messages import Message

# Where nothing is set: 16 MiB keep the processes of one machine balanced; from 64 GiB on there are
# as many partitions as some 400 workers need, of sizes that grow with the input up to an archive's.
PARTITION_BYTES, MOST_BYTES = 16 << 20, 1 << 30
MANY_PARTITIONS = 4096
MANY_SLICES = 1000  # small files in 16 MiB at most


def partition_size(total: int) -> int:
    """The bytes of a partition of an input of so many, where no setting says it."""
    return min(max(total // MANY_PARTITIONS, PARTITION_BYTES), MOST_BYTES)


@dataclass(frozen=True)
class PlanRest(Message):
    """The part of an `InputPlan` that stands in no column."""

    columns: dict[str, str]
    notices: tuple[str, ...]
    unreadable: int
    documents_of_last: int | None


@dataclass(frozen=True)
class InputPlan:
    """Files, partitions, the columns carried along (name -> kind), and what was passed over, of
    which `unreadable` files and folders because they could not be read. documents_of_last: how many
    documents of the last partition are read, the first ones; None: all."""

    files: Sequence[InputFile]
    partitions: Sequence[tuple[Slice, ...]]
    columns: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    unreadable: int = 0
    documents_of_last: int | None = None

    def dump(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "files": [asdict(f) for f in self.files],
            "partitions": [[asdict(s) for s in p] for p in self.partitions],
            "columns": self.columns,
            "notices": self.notices,
            "unreadable": self.unreadable,
            "documents_of_last": self.documents_of_last,
        }

    def write(self, folder: Path) -> PlanRest:
        """Writes files and partitions into a folder as columns; returns the rest."""
        write_plan(folder, self.files, self.partitions)
        return PlanRest(self.columns, self.notices, self.unreadable, self.documents_of_last)

    @classmethod
    def map(cls, folder: Path, rest: PlanRest) -> InputPlan:
        """Return the plan that was written into a folder, whose files are mapped."""
        return cls(*map_plan(folder), *vars(rest).values())

    @classmethod
    def load(cls, data: dict[str, Any]) -> InputPlan:
        """Return the plan that was dumped."""
        files = tuple(InputFile(**f) for f in data["files"])
        cut = Partitions.of((Slice(**s) for s in p) for p in data["partitions"])
        rest = {**data, "notices": tuple(data["notices"]), "files": files, "partitions": cut}
        return cls(**rest)

    def fingerprint(self) -> str:
        """Changes when a file is added, removed, or touched, or the partitioning changes."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        files = ([f.rel, f.format, f.size, f.stamp] for f in self.files)
        cuts = Partitions.of(self.partitions).numbers()
        last = [] if self.documents_of_last is None else [self.documents_of_last]
        rest = json.dumps([sorted(self.columns.items()), *last])
        # As JSON of all of it, an item at a time.
        return text_digest(
            chain("[[", _items(files), "], [", _items(cuts), "], ", rest.removeprefix("["))
        )

    def most_documents(self, partition: int) -> int | None:
        """How many documents of a partition are read; None: all."""
        return self.documents_of_last if partition == len(self.partitions) - 1 else None

    def without_documents(self, documents: Iterable[list[int]]) -> dict[str, Any]:
        """`files`, the number of those that gave no document, and the name of the `first`.
        documents: of each slice of each partition, but for slices that were not read."""
        counts = [0] * len(self.files)
        for slices, numbers in zip(self.partitions, documents, strict=True):
            for place, piece in enumerate(slices):
                counts[piece.file] += numbers[place] if place < len(numbers) else 1
        empty = [file for file, count in enumerate(counts) if not count]
        return {"files": len(empty), "first": self.files[empty[0]].rel if empty else ""}


def empty_files(figures: dict[str, Any]) -> list[str]:
    """A line on the files that gave no document; nothing if each gave one."""
    files, first = (figures.get("without_documents") or {"files": 0, "first": ""}).values()
    if not files:
        return []
    return [f"{counted(files, 'file')} gave no document{': ' if files == 1 else ', first '}{first}"]


def _items(values: Iterable[Any]) -> Iterator[str]:
    """The values as JSON has them within a list."""
    separator = ""
    for value in values:
        yield separator + json.dumps(value)
        separator = ", "


def _slices(numbered: tuple[int, InputFile], target: int) -> list[Slice]:
    number, file = numbered
    cut = getattr(FORMATS[file.format].reader, "slices", None)
    ranges = cut(file, target) if cut else [(0, None)]
    return [Slice(number, start, end) for start, end in ranges]


def plan_inputs(
    inputs: Iterable[str],
    partition_bytes: int | None = None,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
    skip_unreadable: bool | None = None,
    columns: Columns = Columns(),
    choice: Choice = Choice(),
) -> InputPlan:
    """Files cut into partitions of about partition_bytes (stored size; None: by the input's);
    at_once: files that are looked at together, which changes nothing else; skip_unreadable,
    columns, choice: as of `find_files`."""
    how: dict[str, Any] = {"skip_unreadable": skip_unreadable, "columns": columns}
    listed = find_files(inputs, at_once=at_once, choice=choice, **how)
    plan = plan_files(listed.files, partition_bytes, sample_lines, at_once, columns)
    return replace(plan, notices=tuple(listed.notices), unreadable=listed.unreadable)


def plan_files(
    files: list[InputFile],
    partition_bytes: int | None,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
    columns: Columns = Columns(),
) -> InputPlan:
    """The same of files that are found already."""
    with readable():
        return _planned(files, partition_bytes, sample_lines, at_once, columns)


def _planned(
    files: list[InputFile],
    partition_bytes: int | None,
    sample_lines: int,
    at_once: int,
    names: Columns,
) -> InputPlan:
    from curate.formats.column_plan import carried_columns

    target = partition_bytes or partition_size(sum(file.size for file in files))
    most = MANY_SLICES if partition_bytes else MANY_SLICES * target // PARTITION_BYTES
    cut = in_order(partial(_slices, target=target), [*enumerate(files)], at_once)
    grouped = Partitions.of(_grouped(files, cut, target, most))
    columns = carried_columns(files, sample_lines, at_once, names)
    return InputPlan(tuple(files), grouped, columns)


def _grouped(
    files: list[InputFile], cut: Iterable[list[Slice]], partition_bytes: int, most: int
) -> Iterator[tuple[Slice, ...]]:
    """Partitions: a slice of a large file, or small files together, `most` at most. cut: the slices
    of each."""
    group: list[Slice] = []
    weight = 0
    for file, slices in zip(files, cut, strict=True):
        small = len(slices) == 1 and file.size < partition_bytes // 4
        if group and (not small or weight + file.size > partition_bytes // 2):
            yield tuple(group)
            group, weight = [], 0
        if not small:
            yield from ((s,) for s in slices)
            continue
        group.append(slices[0])
        weight += file.size
        if len(group) >= most:
            yield tuple(group)
            group, weight = [], 0
    if group:
        yield tuple(group)
