"""Groups of sketch files, and the tables that the tasks of one phase write for those of the next. A
group is what one task reads; the division into groups depends only on the sketch files. A writing
task (of one phase) writes a file with one record batch for each reading task (of the next phase).
All batches for one reading task are called a slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType
from typing import TypeVar, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.decisions import arrow_writer
from curate.corpus.sketches import Run, Sketches, SketchFile
from llmcurate.base.disk.seals import Seal, sealing
from llmcurate.base.messages import Message, Task, decode, encode

R = TypeVar("R")
MOST = 2**32 - 1  # documents that 32-bit numbers can distinguish, minus one


def part_file(folder: Path, name: str, part: int) -> Path:
    """Return the path of a file of task `part`: rows-00003.arrow for the name `rows.arrow`."""
    stem, ending = name.split(".", 1)
    return folder / f"{stem}-{part:05d}.{ending}"


def part_files(folder: Path, name: str, count: int) -> list[Path]:
    return [part_file(folder, name, part) for part in range(count)]


@dataclass(frozen=True)
class Group:
    """Consecutive files of sketches (short descriptions of documents), the input of one task."""

    part: int  # number of the group
    files: tuple[SketchFile, ...]
    first: int  # number of sketches in earlier groups
    rows: int  # number of sketches in this group


@dataclass(frozen=True)
class FolderTask(Task):
    """A task that writes files into a folder. The files' names contain the number of the task."""

    folder: Path

    def file(self, name: str) -> Path:
        return part_file(self.folder, name, self.part)


@dataclass(frozen=True)
class GroupTask(FolderTask):
    group: Group


@dataclass(frozen=True)
class CandidateTask(GroupTask):
    """A task on the candidates for duplicates in a group of sketch files."""

    bits: Path  # file with one bit per document, set for candidates
    before: int  # number of candidates in earlier groups
    columns: tuple[str, ...]  # columns of the sketches to read
    read: int  # number of sketches read at a time

    def schema(self) -> pa.Schema:
        sketches = pq.read_schema(self.group.files[0].path)
        fields = [sketches.field(name) for name in self.columns]
        number, name = sketches.field("n"), pa.field("id", pa.string())
        return pa.schema([*fields, pa.field("part", pa.int32()), number, name])


def groups(
    sketches: Sketches,
    most: int,
    weigh: Callable[[pq.FileMetaData], int] = lambda metadata: int(metadata.num_rows),
) -> list[Group]:
    """Return the sketch files in groups of up to `most` sketches, in order. A file with more
    sketches is a group by itself. `weigh` returns a file's size in the unit of `most`, by default
    the number of its sketches."""
    parted: list[Group] = []
    waiting: list[SketchFile] = []
    first = rows = size = 0
    for file in sketches.files:
        metadata = pq.read_metadata(file.path)
        weight = weigh(metadata)
        if waiting and size + weight > most:
            parted.append(Group(len(parted), tuple(waiting), first, rows))
            first, rows, size, waiting = first + rows, 0, 0, []
        waiting.append(file)
        rows += metadata.num_rows
        size += weight
    if waiting:
        parted.append(Group(len(parted), tuple(waiting), first, rows))
    return parted


@dataclass(frozen=True)
class SealedTask(Task):
    """A message to a worker: call `function` with the JSON `task`, then record the size and digest
    (seal) of each file that the call wrote."""

    function: str
    task: str


@dataclass(frozen=True)
class Sealed(Message):
    """The JSON result of a SealedTask's call, and [path, [size, digest]] of each file written."""

    result: str
    seals: list[tuple[Path, Seal]]


def run_tasks(
    run: Run,
    function: str,
    tasks: Sequence[Task],
    result: type[R] = NoneType,  # type: ignore[assignment]
) -> list[R]:
    """Run a function on tasks and return the results in the order of the tasks. If a journal (a
    list of files) is active, add the files written by the tasks to the journal."""
    if not journal.active():
        results = {task.part: found for task, found in run(function, tasks, result)}
        return [results[task.part] for task in tasks]
    results = {}
    sealing = [SealedTask(t.part, function, encode(t).decode()) for t in tasks]
    for task, sealed in run(f"{__name__}:seal_written", sealing, Sealed):
        for path, seal in sealed.seals:
            journal.note(path, seal)
        results[task.part] = decode(result, sealed.result)
    return [results[task.part] for task in tasks]


def seal_written(task: SealedTask) -> Sealed:
    """Call the function that the task names. Return its result and the digests of its files."""
    function = resolve_name(task.function)
    kinds = get_type_hints(function)
    with sealing() as written:
        result = function(decode(kinds["task"], task.task))
    return Sealed(encode(result).decode(), [(Path(path), seal) for path, seal in written])


def write_slices(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write tables, one per reading task, to a file, which appears only when it is complete."""
    empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    with arrow_writer(path, schema) as writer:
        for table in tables:
            batches = table.cast(schema).combine_chunks().to_batches()
            writer.write_batch(batches[0] if batches else empty)


def read_slice(paths: Sequence[Path], number: int) -> Iterator[pa.RecordBatch]:
    """Yield one batch per file in `paths`: the batch for the reading task with this number."""
    for path in paths:
        with pa.OSFile(str(path)) as file:
            yield pa.ipc.open_file(file).get_batch(number)
