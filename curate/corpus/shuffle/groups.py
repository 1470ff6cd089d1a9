"""Sketch files in groups, each a task: the plan follows from the input, never from workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from curate.corpus.sketches import Run, SketchFile, Task, run_here

MOST = 2**32 - 1  # documents that 32-bit numbers tell apart, with one to spare
GROUP = 200_000  # sketches that a task is given; a file that holds more is a group by itself


@dataclass(frozen=True)
class Group:
    """Consecutive files. part: its number; first: how many sketches come before it; rows: how many
    it has."""

    part: int
    files: tuple[SketchFile, ...]
    first: int
    rows: int

    def dump(self) -> dict[str, Any]:
        """As JSON has it: what every task on a group is told."""
        files = [file.dump() for file in self.files]
        return {"part": self.part, "files": files, "first": self.first, "rows": self.rows}

    @classmethod
    def load(cls, task: Task) -> Group:
        """The group that a task is about."""
        files = tuple(SketchFile.load(file) for file in task["files"])
        return cls(task["part"], files, task["first"], task["rows"])

    def reads(self) -> list[str]:
        """The files that hold its sketches and, for their ids, what was settled."""
        ids = {str(file.ids) for file in self.files if file.ids}
        return [*(str(file.path) for file in self.files), *sorted(ids)]


def groups(
    files: Sequence[SketchFile],
    most: int | None = None,
    weigh: Callable[[pq.FileMetaData], int] = lambda metadata: int(metadata.num_rows),
) -> list[Group]:
    """The files cut into groups of up to `most` sketches (GROUP), in order; weigh: what is counted
    of a file in the place of sketches."""
    most = most or GROUP
    found: list[Group] = []
    waiting: list[SketchFile] = []
    first = rows = held = 0
    for file in files:
        metadata = pq.read_metadata(file.path)
        weight = weigh(metadata)
        if waiting and held + weight > most:
            found.append(Group(len(found), tuple(waiting), first, rows))
            first, rows, held, waiting = first + rows, 0, 0, []
        waiting.append(file)
        rows += metadata.num_rows
        held += weight
    if waiting:
        found.append(Group(len(found), tuple(waiting), first, rows))
    return found


def run_tasks(run: Run, function: str, tasks: list[Task]) -> list[dict[str, Any]]:
    """What the tasks returned, in their order. One alone is done here: a small corpus waits for no
    worker."""
    done = list((run if len(tasks) != 1 else run_here)(function, tasks))
    return [result for _, result in sorted(done, key=lambda pair: pair[0]["part"])]
