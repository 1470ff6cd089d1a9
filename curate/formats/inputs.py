"""The plan of an input: its files and the partitions that they are cut into.

The same files give the same plan for any number of workers. A partition is a slice of a large file
or a group of small files. The types of unknown columns are fixed before any partition is read. The
plan is stored as columns in Arrow files, which workers map instead of holding it in memory.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa

from curate.documents.attributes import is_attribute
from curate.formats.column_types import common_kind, kind_of_type
from curate.formats.columns import (
    EXTRA,
    KNOWN,
    Columns,
    TooManyColumns,
    column_name,
    folder_columns,
    kind_of,
)
from curate.formats.data_sets import Choice
from curate.formats.delimited import read_header
from curate.formats.jsonl import sample
from curate.formats.kinds import FORMATS
from curate.formats.listing import InputFile, find_files, readable
from curate.formats.parquet import read_schema
from llmcurate.base.disk.files import replacing, text_digest
from llmcurate.base.disk.process import AT_ONCE, in_order
from llmcurate.base.disk.units import counted
from llmcurate.base.messages import Message

# Defaults: 16 MiB keep the processes of one machine balanced. From 64 GiB on there are as many
# partitions as some 400 workers need, and their size grows with the input up to 1 GiB.
PARTITION_BYTES, MOST_BYTES = 16 << 20, 1 << 30
MANY_PARTITIONS = 4096
MANY_SLICES = 1000  # the most small files in a partition of 16 MiB


def partition_size(total: int) -> int:
    """Return the bytes per partition for an input of `total` bytes, if the user sets no size."""
    return min(max(total // MANY_PARTITIONS, PARTITION_BYTES), MOST_BYTES)


MOST = 500  # columns planned from JSON keys; later keys go to `extra`
MOST_STORED = 10_000  # columns of tables: each takes 15 kB in a worker, even with few rows
FILES, PARTITIONS = "plan-files.arrow", "plan-partitions.arrow"  # in the first stage's folder
ROWS = 1 << 16  # rows per record batch of these files
_FIELDS = tuple(f.name for f in fields(InputFile))


@dataclass(frozen=True)
class Slice:
    """A part [start, end) of a file, counted in row groups of a parquet file, else in bytes."""

    file: int
    start: int
    end: int | None


class Partitions(Sequence[tuple[Slice, ...]]):
    """A sequence of partitions, each a tuple of slices, read from the column `rows`, which holds a
    list of (file, start, end) per partition."""

    def __init__(self, rows: pa.ChunkedArray) -> None:
        self.rows = rows

    @classmethod
    def of(cls, partitions: Iterable[Iterable[Slice]]) -> Partitions:
        """Return the partitions as columns of numbers, filled one partition at a time."""
        if isinstance(partitions, Partitions):
            return partitions
        bounds, numbers = array("i", [0]), {k: array("q") for k in ("file", "start", "end")}
        for partition in partitions:
            for s in partition:
                numbers["file"].append(s.file)
                numbers["start"].append(s.start)
                numbers["end"].append(-1 if s.end is None else s.end)
            bounds.append(len(numbers["file"]))
        columns = {k: np.frombuffer(v, np.int64) for k, v in numbers.items()}
        slices = pa.StructArray.from_arrays(
            [
                pa.array(columns["file"]),
                pa.array(columns["start"]),
                pa.array(columns["end"], mask=columns["end"] < 0),
            ],
            names=list(columns),
        )
        lists = pa.ListArray.from_arrays(pa.array(np.frombuffer(bounds, np.int32)), slices)
        return cls(pa.chunked_array([lists]))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> tuple[Slice, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> Partitions: ...

    def __getitem__(self, index: int | slice) -> tuple[Slice, ...] | Partitions:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1
            return Partitions(self.rows.slice(start, max(0, stop - start)))
        return tuple(Slice(**s) for s in self.rows[index].as_py())

    def __iter__(self) -> Iterator[tuple[Slice, ...]]:
        for partition in self.numbers():
            yield tuple(Slice(*numbers) for numbers in partition)

    def numbers(self) -> Iterator[list[list[Any]]]:
        """Yield [[file, start, end], ...] per partition; at most ROWS partitions are in memory."""
        for first in range(0, len(self), ROWS):
            for chunk in self.rows.slice(first, ROWS).chunks:
                flat = chunk.flatten()
                columns = (flat.field(name).to_pylist() for name in ("file", "start", "end"))
                slices = [*map(list, zip(*columns, strict=True))]
                ends = (chunk.offsets.to_numpy() - chunk.offsets[0].as_py()).tolist()
                for begin, end in pairwise(ends):
                    yield slices[begin:end]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and bool(self.rows.equals(other.rows))

    def __hash__(self) -> int:
        return len(self)

    def table(self) -> pa.Table:
        """Return a table with a row per slice: number of the partition (`part`), number of the
        slice in the partition, number of the file, start of the slice."""
        rows = pa.concat_arrays(self.rows.chunks)
        counts = rows.value_lengths().to_numpy(zero_copy_only=False)
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        flat = rows.flatten()
        return pa.table(
            {
                "part": np.repeat(np.arange(len(rows), dtype=np.int32), counts),
                "slice": (np.arange(len(flat)) - begins).astype(np.int32),
                "file": flat.field("file"),
                "start": flat.field("start"),
            }
        )


class Files(Sequence[InputFile]):
    """The files of a plan, read from a table with one column per field of `InputFile`."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> InputFile: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[InputFile]: ...

    def __getitem__(self, index: int | slice) -> InputFile | Sequence[InputFile]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        values = {name: self._table[name][index].as_py() for name in _FIELDS}
        # File names may hold bytes that are not UTF-8.
        texts = {k: v.decode("utf-8", "surrogateescape") for k, v in values.items() if k != "size"}
        return InputFile(**{**values, **texts})


def _write(table: pa.Table, path: Path) -> None:
    with (
        replacing(path, only_if_changed=True) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=ROWS)


def _map(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def write_plan(
    folder: Path, files: Sequence[InputFile], partitions: Iterable[Iterable[Slice]]
) -> None:
    """Write the files and partitions of a plan into a folder."""
    columns = {}
    for name in _FIELDS:
        values = [getattr(f, name) for f in files]
        if name == "size":
            columns[name] = pa.array(values, pa.int64())
        else:
            encoded = (v.encode("utf-8", "surrogateescape") for v in values)
            columns[name] = pa.array(encoded, pa.binary(), size=len(values))
    _write(pa.table(columns), folder / FILES)
    _write(pa.table({"slices": Partitions.of(partitions).rows}), folder / PARTITIONS)


@dataclass(frozen=True)
class PlanRest(Message):
    """The fields of an `InputPlan` that `InputPlan.write` does not store in columns."""

    columns: dict[str, str]
    notices: tuple[str, ...]
    unreadable: int
    documents_of_last: int | None


@dataclass(frozen=True)
class InputPlan:
    """The plan of an input: its files and the partitions to read.

    - `columns`: {name: kind} of the columns that are carried along.
    - `notices`: a line of text for each thing that was skipped.
    - `unreadable`: the number of files and folders that could not be read.
    - `documents_of_last`: the number of documents to read from the last partition; None: all.
    - `own`: columns with a dot in the name that are not scores of an earlier run.
    """

    files: Sequence[InputFile]
    partitions: Sequence[tuple[Slice, ...]]
    columns: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    unreadable: int = 0
    documents_of_last: int | None = None
    own: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "files": [asdict(f) for f in self.files],
            "partitions": [[asdict(s) for s in p] for p in self.partitions],
            "columns": self.columns,
            "notices": self.notices,
            "unreadable": self.unreadable,
            "documents_of_last": self.documents_of_last,
            "own": self.own,
        }

    def write(self, folder: Path) -> PlanRest:
        """Write files and partitions into a folder as columns; return the plan's other fields."""
        write_plan(folder, self.files, self.partitions)
        return PlanRest(self.columns, self.notices, self.unreadable, self.documents_of_last)

    @classmethod
    def map(cls, folder: Path, rest: PlanRest) -> InputPlan:
        """Return the plan that `write` stored in a folder, with its files and partitions mapped
        into memory. `rest` is what `write` returned."""
        partitions = Partitions(_map(folder / PARTITIONS)["slices"])
        return cls(Files(_map(folder / FILES)), partitions, *vars(rest).values())

    @classmethod
    def load(cls, data: dict[str, Any]) -> InputPlan:
        """Return the plan from the values that `dump` returned."""
        files = tuple(InputFile(**f) for f in data["files"])
        cut = Partitions.of((Slice(**s) for s in p) for p in data["partitions"])
        texts = {name: tuple(data.get(name, ())) for name in ("notices", "own")}
        return cls(**{**data, **texts, "files": files, "partitions": cut})

    def fingerprint(self) -> str:
        """Return a digest of the files (names, sizes, stamps), the partitions and the columns."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        files = ([f.rel, f.format, f.size, f.stamp] for f in self.files)
        cuts = Partitions.of(self.partitions).numbers()
        last = [] if self.documents_of_last is None else [self.documents_of_last]
        rest = json.dumps([sorted(self.columns.items()), *last])
        # The digest of all as one JSON text, written item by item.
        return text_digest(
            chain("[[", _items(files), "], [", _items(cuts), "], ", rest.removeprefix("["))
        )

    def most_documents(self, partition: int) -> int | None:
        """Return how many documents to read from a partition; None stands for all."""
        return self.documents_of_last if partition == len(self.partitions) - 1 else None

    def without_documents(self, documents: Iterable[list[int]]) -> dict[str, int | str]:
        """Return {"files": number of files without a document, "first": name of the first one}.
        `documents` has document counts by partition and slice, up to the last slice read."""
        counts = [0] * len(self.files)
        for slices, numbers in zip(self.partitions, documents, strict=True):
            for place, piece in enumerate(slices):
                counts[piece.file] += numbers[place] if place < len(numbers) else 1
        empty = [file for file, count in enumerate(counts) if not count]
        return {"files": len(empty), "first": self.files[empty[0]].rel if empty else ""}


def empty_files(without: dict[str, int | str] | None) -> list[str]:
    """Return a line about the files that `InputPlan.without_documents` counted, if any."""
    if not without or not without["files"]:
        return []
    files, first = int(without["files"]), without["first"]
    return [f"{counted(files, 'file')} gave no document{': ' if files == 1 else ', first '}{first}"]


def _items(values: Iterable[Any]) -> Iterator[str]:
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
    """Return the plan of the inputs, cut into partitions of about `partition_bytes` stored bytes
    (None: a size that fits the input). `at_once` files are inspected in parallel.
    `skip_unreadable`, `columns` and `choice` are those of `find_files`."""
    listed = find_files(
        inputs, at_once=at_once, skip_unreadable=skip_unreadable, columns=columns, choice=choice
    )
    plan = plan_files(listed.files, partition_bytes, sample_lines, at_once, columns)
    return replace(plan, notices=tuple(listed.notices), unreadable=len(listed.unreadable))


def plan_files(
    files: list[InputFile],
    partition_bytes: int | None,
    sample_lines: int = 1000,
    at_once: int = AT_ONCE,
    columns: Columns = Columns(),
) -> InputPlan:
    """Return the plan of an input whose files were found already."""
    with readable():
        target = partition_bytes or partition_size(sum(file.size for file in files))
        most = MANY_SLICES if partition_bytes else MANY_SLICES * target // PARTITION_BYTES
        cut = in_order(partial(_slices, target=target), [*enumerate(files)], at_once)
        grouped = Partitions.of(_grouped(files, cut, target, most))
        own: set[str] = set()
        carried = carried_columns(files, sample_lines, at_once, columns, own)
        return InputPlan(tuple(files), grouped, carried, own=tuple(sorted(own)))


def _grouped(
    files: list[InputFile], cut: Iterable[list[Slice]], partition_bytes: int, most: int
) -> Iterator[tuple[Slice, ...]]:
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


# Carried columns.


def carried_columns(
    files: Sequence[Any],
    sample_lines: int,
    at_once: int = AT_ONCE,
    columns: Columns = Columns(),
    own: set[str] | None = None,
) -> dict[str, str]:
    """Return {name: type} of all columns that llmcurate does not know. The column `extra`, for
    values that do not fit their column, is added if a file is JSONL or CSV or a column has several
    types. Names with a dot, other than scores of an earlier run, are added to the set `own`."""
    kinds: dict[str, str | None] = {}
    wider: set[str] = set()  # columns of more than one type
    extra = any(file.format == "csv" for file in files)

    def add_kind(name: str, kind: str | None, score: bool = False) -> None:
        if own is not None and "." in name and not score:
            own.add(name)
        old = kinds.get(name)
        if None not in (old, kind) and old != kind:
            wider.add(name)
        kinds[name] = common_kind(old, kind)

    schemas = in_order(partial(_schema, columns=columns), files, at_once)
    for file, schema in zip(files, schemas, strict=True):
        if schema is not None:
            for f in schema:
                if f.name not in KNOWN:
                    add_kind(column_name(f.name, f.type), kind_of_type(f.type), is_attribute(f))
            if len(kinds) > MOST_STORED:
                raise TooManyColumns(
                    f"input {file.path}: it has {len(kinds):,} columns to carry along, more than"
                    f" {MOST_STORED:,}: write it without those that are not needed"
                )
        elif file.format == "jsonl":
            extra = True
            for record in sample(file.path, file.codec, sample_lines):
                for key, value in columns.record(record).items():
                    name = column_name(key)
                    if key not in KNOWN and (name in kinds or len(kinds) < MOST):
                        add_kind(name, kind_of(value))
        else:
            for name, kind in getattr(FORMATS[file.format].reader, "COLUMNS", {}).items():
                add_kind(name, kind)
        for name, value in folder_columns(file.rel, columns).items():
            if name not in KNOWN and (schema is None or name not in schema.names):
                add_kind(name, kind_of(value))
    if extra or any(kinds[name] != "json" for name in wider):
        kinds[EXTRA] = "json"
    return {name: kind or "string" for name, kind in sorted(kinds.items())}


def _schema(file: Any, columns: Columns) -> pa.Schema | None:
    if file.format == "csv":
        names = read_header(file.path, file.codec, columns)
        return pa.schema([(name, pa.string()) for name in names])
    return read_schema(file.path, columns) if file.format == "parquet" else None
