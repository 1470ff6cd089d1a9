"""A cluster of two workers on one machine that cannot see what the driver has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from curate.engines import idle_workers
from curate.engines.base import Engine, OnDeath, Task
from curate.engines.choose import open_engine
from curate.engines.exchange import Exchange
from curate.engines.exchange_engine import ExchangeEngine
from curate.engines.local import LocalEngine


class Apart:
    """Two workers in turn, in processes of their own. While one works, folders that only the driver
    has are not where they were: also code that is not Python's finds nothing there."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.out = Path()
        self.hidden: list[Path] = []  # beside OUT
        self.done: list[str] = []
        self._workers = [LocalEngine(1), LocalEngine(1)]

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *error: object) -> None:
        """The workers stay for the next run."""

    def close(self) -> None:
        """Ends the workers, whatever is kept for other tests."""
        kept = idle_workers._kept
        idle_workers.keep(0)
        for worker in self._workers:
            worker.close()
        idle_workers.keep(kept)

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        for turn, task in enumerate(tasks):
            asides = [
                (path, path.with_name(f"hidden-{path.name}")) for path in (self.out, *self.hidden)
            ]
            for path, aside in asides:
                path.rename(aside)

            def died(task: Task, death: Any) -> Task:
                assert on_death is not None
                _back(asides)  # noqa: B023
                again = on_death(task, death)
                for path, aside in asides:  # noqa: B023
                    path.rename(aside)
                return again

            try:
                worker = self._workers[turn % 2]
                ((files, result),) = list(worker.map(function, [task], on_death and died))
            finally:
                _back(asides)
            of = task["payload"].get("function", task["function"])  # of `seal_written`
            self.done.append(of.partition(":")[2])
            yield files, result

    def opened(self, name: str, *args: Any, **options: Any) -> Engine:
        """In the place of `open_engine`."""
        exchange = args[-1]
        if name == "local":
            return open_engine(name, *args, **options)
        assert isinstance(exchange, Exchange)
        self.out = exchange.out
        return ExchangeEngine(self, exchange, behind=0)  # nothing is fetched while OUT is hidden


def _back(asides: list[tuple[Path, Path]]) -> None:
    for path, aside in asides:
        assert not path.exists()
        aside.rename(path)
