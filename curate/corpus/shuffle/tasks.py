"""Groups of sketch files, each a task, and the tables that tasks of one phase leave to the next.

The plan follows from the input, never from workers. A slice is what every writer has for one
reader: a file a writer, in it a record batch a reader.
"""

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
MOST = 2**32 - 1  # documents that 32-bit numbers tell apart, with one to spare


def part_file(folder: Path, name: str, part: int) -> Path:
    """Return the file that task number `part` leaves under a name: rows-00003.arrow of
    `rows.arrow`."""
    stem, ending = name.split(".", 1)
    return folder / f"{stem}-{part:05d}.{ending}"


def part_files(folder: Path, name: str, count: int) -> list[Path]:
    """Return the files of so many tasks, in order."""
    return [part_file(folder, name, part) for part in range(count)]


@dataclass(frozen=True)
class Group:
    """Consecutive files. part: its number; first: how many sketches come before it; rows: how many
    it has."""

    part: int
    files: tuple[SketchFile, ...]
    first: int
    rows: int


@dataclass(frozen=True)
class FolderTask(Task):
    """A task that leaves files in a folder, named by its number."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return its file under a name, as `part_file` has it."""
        return part_file(self.folder, name, self.part)


@dataclass(frozen=True)
class GroupTask(FolderTask):
    """A task on a group of sketch files, with the group's number."""

    group: Group


@dataclass(frozen=True)
class CandidateTask(GroupTask):
    """A task on a group's candidates. bits: the file of all; before: how many come before them;
    columns: of their sketches; read: how many sketches are read at once."""

    bits: Path
    before: int
    columns: tuple[str, ...]
    read: int

    def schema(self) -> pa.Schema:
        """Of what `candidate_batches` gives."""
        sketches = pq.read_schema(self.group.files[0].path)
        fields = [sketches.field(name) for name in self.columns]
        number, name = sketches.field("n"), pa.field("id", pa.string())
        return pa.schema([*fields, pa.field("part", pa.int32()), number, name])


def groups(
    sketches: Sketches,
    most: int,
    weigh: Callable[[pq.FileMetaData], int] = lambda metadata: int(metadata.num_rows),
) -> list[Group]:
    """The files of sketches cut into groups of up to `most` sketches, in order. weigh: counts
    something else of a file than its sketches. A file that has more is a group by itself."""
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
    """A task of a function, as JSON, whose files are to be sealed."""

    function: str
    task: str


@dataclass(frozen=True)
class Sealed(Message):
    """The result of a task, as JSON, and the seals of the files that it wrote, by path."""

    result: str
    seals: list[tuple[Path, Seal]]


def run_tasks(
    run: Run,
    function: str,
    tasks: Sequence[Task],
    result: type[R] = NoneType,  # type: ignore[assignment]
) -> list[R]:
    """The results of the tasks, in their order. In a resolve the workers seal what they write."""
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
    """A task: another one, and the seals of the files that it wrote."""
    function = resolve_name(task.function)
    kinds = get_type_hints(function)
    with sealing() as written:
        result = function(decode(kinds["task"], task.task))
    return Sealed(encode(result).decode(), [(Path(path), seal) for path, seal in written])


def write_slices(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes the tables, one for each reader in order; whole or absent."""
    none = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    with arrow_writer(path, schema) as writer:
        for table in tables:
            whole = table.cast(schema).combine_chunks().to_batches()
            writer.write_batch(whole[0] if whole else none)


def read_slice(paths: Sequence[Path], number: int) -> Iterator[pa.RecordBatch]:
    """What every writer has for reader `number`, in the order of writers."""
    for path in paths:
        with pa.OSFile(str(path)) as file:
            yield pa.ipc.open_file(file).get_batch(number)
