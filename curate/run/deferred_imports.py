"""Modules that a run loads late, since they take their time: at the end, or while workers work."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run
from curate.run.outcome import Outcome
from llmcurate.base.disk.elsewhere import Storage

# The module that writes a run's report, by its name: a third of a second to load.
REPORT = "curate.inspect.report.page"
Report = Callable[[Outcome, int, Run, Sizes, Storage], Callable[[], None]]


def begin_report(
    outcome: Outcome, threads: int, run: Run, sizes: Sizes, storage: Storage
) -> Callable[[], None]:
    """Counts for run.json and the pages of a run; what it returns writes them."""
    write: Callable[[], None] = importlib.import_module(REPORT).begin_report(
        outcome, threads, run, sizes, storage
    )
    return write


def load_ahead(decided_by: str | None) -> None:
    """Imports, in a thread, what this process needs once its workers have done a stage.
    decided_by: the module whose kernels decide behind it."""
    names = [decided_by] if decided_by else []

    def load() -> None:
        for name in (*names, "duckdb", "jinja2", REPORT):
            with suppress(ImportError):  # whoever needs it says so
                importlib.import_module(name)
            if name == decided_by and "llmcurate.base.kernels.cache" in sys.modules:
                sys.modules["llmcurate.base.kernels.cache"].prepare()

    Thread(target=load).start()
