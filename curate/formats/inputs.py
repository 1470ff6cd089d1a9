"""The plan of an input: its files, and the partitions that they are cut into.

The plan depends on the input alone: same files, same plan, for any number of workers. A partition
is one slice of a large file (gzip members or zstd frames of an archive, where verified; line
ranges of plain JSON lines; row groups of parquet) or a run of small files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from curate.disk.files import text_digest
from curate.disk.process import AT_ONCE, in_order
from curate.formats.columns import Columns
from curate.formats.kinds import FORMATS
from curate.formats.listing import InputFile, find_files, readable

MANY_SLICES = 1000  # small files in one partition at most


@dataclass(frozen=True)
class Slice:
    """A part of a file: bytes [start, end) of an archive or of lines, row groups of parquet."""

    file: int
    start: int
    end: int | None


@dataclass(frozen=True)
class InputPlan:
    """Files, partitions, the columns carried along (name -> kind), and what was passed over, of
    which `unreadable` files and folders because they could not be read. documents_of_last: how many
    documents of the last partition are read, the first ones; None: all."""

    files: tuple[InputFile, ...]
    partitions: tuple[tuple[Slice, ...], ...]
    columns: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    unreadable: int = 0
    documents_of_last: int | None = None

    def dump(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)

    @staticmethod
    def load(data: dict[str, Any]) -> InputPlan:
        """The inverse of `dump`."""
        return InputPlan(
            tuple(InputFile(**f) for f in data["files"]),
            tuple(tuple(Slice(**s) for s in p) for p in data["partitions"]),
            dict(data["columns"]),
            tuple(data["notices"]),
            # Absent from plans of older versions.
            data.get("unreadable", 0),
            data.get("documents_of_last"),
        )

    def fingerprint(self) -> str:
        """Changes when a file is added, removed, or touched, or the partitioning changes."""
        parts = [[f.rel, f.format, f.size, f.stamp] for f in self.files]
        cuts = [[(s.file, s.start, s.end) for s in p] for p in self.partitions]
        last = [] if self.documents_of_last is None else [self.documents_of_last]
        return text_digest(json.dumps([parts, cuts, sorted(self.columns.items()), *last]))

    def most_documents(self, partition: int) -> int | None:
        """How many documents of a partition are read; None: all."""
        return self.documents_of_last if partition == len(self.partitions) - 1 else None


def _slices(numbered: tuple[int, InputFile], target: int) -> list[Slice]:
    number, file = numbered
    cut = getattr(FORMATS[file.format].reader, "slices", None)
    ranges = cut(file, target) if cut else [(0, None)]
    return [Slice(number, start, end) for start, end in ranges]


def plan_inputs(
    inputs: Iterable[str],
    partition_bytes: int = 16 << 20,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
    skip_unreadable: bool | None = None,
    columns: Columns = Columns(),
) -> InputPlan:
    """Files cut into partitions of about partition_bytes (stored size); at_once: files that are
    looked at together, which changes nothing else; skip_unreadable, columns: as of `find_files`."""
    listed = find_files(inputs, at_once=at_once, skip_unreadable=skip_unreadable, columns=columns)
    plan = plan_files(listed.files, partition_bytes, sample_lines, at_once, columns)
    return replace(plan, notices=tuple(listed.notices), unreadable=listed.unreadable)


def plan_files(
    files: list[InputFile],
    partition_bytes: int,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
    columns: Columns = Columns(),
) -> InputPlan:
    """The same of files that are found already."""
    with readable():
        return _planned(files, partition_bytes, sample_lines, at_once, columns)


def _planned(
    files: list[InputFile],
    partition_bytes: int,
    sample_lines: int,
    at_once: int,
    names: Columns,
) -> InputPlan:
    from curate.formats.column_plan import carried_columns

    partitions: list[tuple[Slice, ...]] = []
    group: list[Slice] = []
    weight = 0
    cut = partial(_slices, target=partition_bytes)
    for file, slices in zip(files, in_order(cut, list(enumerate(files)), at_once), strict=True):
        small = len(slices) == 1 and file.size < partition_bytes // 4
        if group and (not small or weight + file.size > partition_bytes // 2):
            partitions.append(tuple(group))
            group, weight = [], 0
        if not small:
            partitions.extend((s,) for s in slices)
            continue
        group.append(slices[0])
        weight += file.size
        if len(group) >= MANY_SLICES:
            partitions.append(tuple(group))
            group, weight = [], 0
    if group:
        partitions.append(tuple(group))
    columns = carried_columns(files, sample_lines, at_once, names)
    return InputPlan(tuple(files), tuple(partitions), columns)
