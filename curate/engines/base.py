"""The contract of engines, and the errors of their workers as the user sees them.

An engine maps a function, named "module:function", over tasks of JSON values, in processes that
load what they need once and keep it. It knows nothing of documents, stages or files.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from llmcurate.base.errors import Damaged, LlmcurateError, RunFailed, Unforeseen
from llmcurate.base.kernels import compile_time

Task = dict[str, Any]
Self = TypeVar("Self", bound="TaskLoop")


@dataclass(frozen=True)
class Death:
    """How a worker ended: status as subprocess gives it (negative: a signal), and what it did.
    seconds: that it was given for that, where the engine ended it because they were over."""

    status: int
    documents: tuple[int, int] | None
    seconds: float = 0.0

    def describe(self) -> str:
        """For people: `signal SIGSEGV`, `exit status 3` or `took longer than 600 s`."""
        if self.seconds:
            return f"took longer than {self.seconds:,g} s"
        if self.status < 0:
            return f"signal {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class WorkerBug(Unforeseen):
    """An exception in a worker that no rule foresaw; carries the worker's traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True)
class Jobs:
    """The way a cluster is asked for workers. options: of sbatch, as KEY=VALUE; folder: OUT, which
    all machines must see; quiet: whether nobody is told how many have started."""

    options: Sequence[str]
    folder: Path
    quiet: bool = False


OnDeath = Callable[[Task, Death], Task]


class Engine(Protocol):
    """Where work runs. Use as a context manager; workers start with the first task. cpu: seconds
    that tasks have taken in workers so far."""

    cpu: float

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        """(task, result) in the order of arrival. When a worker dies, `on_death` says what to run
        instead, or raises; RunFailed ends everything."""
        ...


class TaskLoop(ABC):
    """What the engines have in common: tasks go to workers, answers come back. A subclass starts
    workers and carries both. Use as a context manager.

    count: of workers; tick: called twice a second.
    """

    def __init__(self, count: int, tick: Callable[[], None]) -> None:
        self._count, self._tick = count, tick
        self.cpu = 0.0  # seconds that tasks have taken in workers

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _working(self) -> int:
        """How many workers have a task."""

    @abstractmethod
    def _send_tasks(self, function: str, waiting: deque[Task], source: Iterator[Task]) -> None:
        """Gives tasks to idle workers, starting those that are missing."""

    @abstractmethod
    def _answers(self) -> Iterator[tuple[Task, dict[str, Any] | None]]:
        """(task, answer) of what has come, within half a second: {"result": ..., "cpu": seconds},
        {"death": (status, documents, seconds)}, {"error": ...}, or None where the worker is lost,
        which is for no task to blame."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        """As Engine.map."""
        waiting: deque[Task] = deque()
        source = iter(tasks)
        try:
            while refill(waiting, source, self._count) or self._working():
                self._send_tasks(function, waiting, source)
                for task, answer in self._answers():
                    if answer is None:
                        waiting.appendleft(task)
                    elif "death" in answer:
                        status, documents, seconds = answer["death"]
                        death = Death(status, tuple(documents) if documents else None, seconds)
                        if on_death is None:
                            raise RunFailed(f"a worker died ({death.describe()})")
                        waiting.appendleft(on_death(task, death))
                    elif "error" in answer:
                        raise failure(answer["error"])
                    else:
                        self.cpu += answer["cpu"]
                        yield task, answer["result"]
                self._tick()
        except BaseException:
            self.close()
            raise


def refill(waiting: deque[Task], tasks: Iterator[Task], count: int) -> bool:
    """Makes `waiting` hold that many tasks, if so many are left; whether it holds any. Tasks are
    made when workers are about to take them: what that costs, and holds, is for these alone."""
    waiting.extend(islice(tasks, max(0, count - len(waiting))))
    return bool(waiting)


def kind_of(error: LlmcurateError) -> str:
    """The "kind" of a worker's answer about an error that tells the user enough."""
    return "damaged" if isinstance(error, Damaged) else "known"


def failure(error: dict[str, Any]) -> LlmcurateError:
    """What a worker's answer {"kind", "message", "code", "traceback"} is for the user."""
    if error["kind"] == "memory":
        return RunFailed(
            "a worker ran out of memory: use fewer --workers or a smaller read.batch_bytes and run"
            " again, it resumes"
        )
    if error["kind"] == "damaged":
        return Damaged(error["message"])
    if error["kind"] == "known":
        failed = RunFailed(error["message"])
        failed.exit_code = error["code"]
        failed.trace = error.get("traceback", "")
        return failed
    return WorkerBug(error["message"], error["traceback"])


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far without compilation, which a machine does once:
    a forecast rests on work that grows with the input."""
    return time.process_time() - compile_time.seconds
