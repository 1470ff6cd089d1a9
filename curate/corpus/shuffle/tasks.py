"""Groups of sketch files, each a task, and the tables that tasks of one phase leave to the next.

The plan follows from the input, never from workers. A slice is what every writer has for one
reader: a file a writer, in it a record batch a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.corpus import journal
from curate.corpus.sketches import Run, Sketches, SketchFile, Task
from llmcurate.base.disk.files import replacing
from llmcurate.base.disk.seals import sealing

MOST = 2**32 - 1  # documents that 32-bit numbers tell apart, with one to spare


@dataclass(frozen=True)
class Group:
    """Consecutive files. part: its number; first: how many sketches come before it; rows: how many
    it has."""

    part: int
    files: tuple[SketchFile, ...]
    first: int
    rows: int

    def dump(self) -> dict[str, Any]:
        """The group as JSON values, a part of each task on it."""
        files = [file.dump() for file in self.files]
        return {"part": self.part, "files": files, "first": self.first, "rows": self.rows}

    @classmethod
    def load(cls, task: Task) -> Group:
        """The group that a task is about."""
        files = tuple(SketchFile.load(file) for file in task["files"])
        return cls(task["part"], files, task["first"], task["rows"])


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


def run_tasks(run: Run, function: str, tasks: list[Task]) -> list[dict[str, Any]]:
    """The results of the tasks, in their order. In a resolve the workers seal what they write."""
    if not journal.active():
        done = list(run(function, tasks))
        return [result for _, result in sorted(done, key=lambda pair: pair[0]["part"])]
    results: list[Any] = [None] * len(tasks)
    numbers = {task["part"]: number for number, task in enumerate(tasks)}
    sealing = [{"part": task["part"], "function": function, "task": task} for task in tasks]
    for task, answer in run(f"{__name__}:seal_written", sealing):
        for path, sealed in answer["sealed"]:
            journal.note(Path(path), sealed)
        results[numbers[task["part"]]] = answer["result"]
    return results


def seal_written(payload: Task) -> dict[str, Any]:
    """A task: another one, `task` of a `function`, and the seals of the files that it wrote."""
    with sealing() as written:
        result = resolve_name(payload["function"])(payload["task"])
    return {"result": result, "sealed": written}


def write_slices(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes the tables, one for each reader in order; whole or absent."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    none = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    with (
        replacing(path, sync=False) as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, schema, options=options) as writer,
    ):
        for table in tables:
            whole = table.cast(schema).combine_chunks().to_batches()
            writer.write_batch(whole[0] if whole else none)


def read_slice(paths: Sequence[Path], number: int) -> Iterator[pa.RecordBatch]:
    """What every writer has for reader `number`, in the order of writers."""
    for path in paths:
        with pa.OSFile(str(path)) as file:
            yield pa.ipc.open_file(file).get_batch(number)
