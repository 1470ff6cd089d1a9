"""Run each task without the files that other tasks of its phase write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.corpus.sketches import run_here
from llmcurate.base.messages import Task


class Alone:
    """Runs the tasks of a phase, the last one first, each as if it were the only one."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self.folder, self.aside = folder, aside
        self.seen: dict[str, int] = {}

    def __call__(self, function: str, tasks: list[Task], result: Any) -> Iterator[tuple[Task, Any]]:
        self.seen[function.partition(":")[2]] = len(tasks)
        before = self._files()
        for task in reversed(tasks):
            yield from run_here(function, [task], result)
            after = self._files()
            assert all(after[path] == data for path, data in before.items())
            for path in after.keys() - before.keys():
                hidden = self.aside / path.relative_to(self.folder)
                hidden.parent.mkdir(parents=True, exist_ok=True)
                assert not hidden.exists(), "another task wrote that file"
                path.rename(hidden)
        for hidden in [path for path in self.aside.rglob("*") if path.is_file()]:
            hidden.rename(self.folder / hidden.relative_to(self.aside))

    def _files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
