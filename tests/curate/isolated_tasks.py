"""Tasks that find nothing but what they say that they read."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.corpus.sketches import Task, run_here


class Alone:
    """Runs each task in a folder where there is nothing but what it says that it reads."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self.folder, self.aside = folder, aside
        self.seen: dict[str, int] = {}

    def __call__(self, function: str, tasks: list[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        module, _, name = function.partition(":")
        says = getattr(importlib.import_module(module), f"{name}_files")
        self.seen[name] = len(tasks)
        for task in reversed(tasks):
            files = says(task)
            self.folder.rename(self.aside)
            for path in map(Path, files["reads"]):
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.aside / path.relative_to(self.folder), path)
            for path in map(Path, files["writes"]):
                path.parent.mkdir(parents=True, exist_ok=True)
            before = {p: p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
            yield from run_here(function, [task])
            after = {p: p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
            assert sorted(map(str, after.keys() - before.keys())) == sorted(files["writes"])
            assert all(after[p] == data for p, data in before.items())
            for path in map(Path, files["writes"]):
                path.rename(self.aside / path.relative_to(self.folder))
            shutil.rmtree(self.folder)
            self.aside.rename(self.folder)
