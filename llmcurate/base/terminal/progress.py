"""Progress of long work: a bar on a terminal, one line in a notebook, lines in a log. Always on
stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

from llmcurate.base.disk.units import format_duration
from llmcurate.base.terminal.output import one_line, tell

LOG_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.5
PACE_SECONDS = 3600.0  # the pace is that of the last hour: a partition may take minutes
_shown: list[Progress] = []  # innermost last


def _in_notebook() -> bool:
    """Whether a cell's output is where lines go, which draws a line again after a return."""
    return "ipykernel" in sys.modules


class Progress:
    """Counts done of total under a title; use as a context manager. done: by an earlier run.

    The time that is left goes by the pace since the first one was done: what comes before it, as
    kernels that compile, is done once.
    """

    def __init__(self, title: str, total: int, quiet: bool = False, done: int = 0) -> None:
        self.title, self.total, self.done = one_line(title), total, done
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._said = time.monotonic()
        self._mentioned = False
        self._drawn = 0  # characters of the line in a notebook

    def __enter__(self) -> Progress:
        _shown.append(self)
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description:<24}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=Console(stderr=True),
                transient=True,
                speed_estimate_period=PACE_SECONDS,
            )
            self._task = self._bar.add_task(
                self.title, total=self.total, completed=self.done, note=""
            )
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        _shown.remove(self)
        if self._bar is not None:
            self._bar.stop()
        if self._drawn:
            tell("")

    def update(
        self, done: int | None = None, note: str = "", seconds_left: float | None = None
    ) -> None:
        """One more done, or `done` in all; note: what to say beside it. seconds_left: for a line of
        a log, where the work knows it; a bar goes by its own pace."""
        self.done = self.done + 1 if done is None else done
        note = one_line(note)
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, note=note)
        elif not self._quiet:
            parts = [note] if note else []
            if seconds_left is not None:
                parts.append(f"{format_duration(seconds_left)} left")
            self._say("".join(f", {part}" for part in parts))

    def _say(self, tail: str) -> None:
        notebook = _in_notebook()
        if time.monotonic() - self._said < (NOTEBOOK_SECONDS if notebook else LOG_SECONDS):
            return
        self._said = time.monotonic()
        line = f"{self.title}: {self.done} of {self.total}{tail}"
        if notebook:
            print(f"\r{line.ljust(self._drawn)}", end="", file=sys.stderr, flush=True)
            self._drawn = len(line)
        else:
            tell(line)


def mention(note: str) -> None:
    """Says what the work that is shown waits for: beside its bar, or as a line of the log, the
    first one at once. Nothing where no progress is shown."""
    if not _shown:
        return
    progress = _shown[-1]
    if not progress._mentioned:
        progress._mentioned = True
        progress._said -= LOG_SECONDS
    progress.update(progress.done, note)


def say(message: str, quiet: bool = False) -> None:
    """A plain line for people, on stderr."""
    if not quiet:
        tell(one_line(message))
