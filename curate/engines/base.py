"""The contract of engines, and what they have in common.

An engine maps a function, named "module:function", over tasks in processes that load what they
need once and keep it. Tasks and results are messages (llmcurate/base/messages.py), or other values
that JSON holds. It knows nothing of documents, stages or files.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from curate.engines.messages import Answer, Death, Failed
from llmcurate.base.errors import RunFailed
from llmcurate.base.kernels import compile_time
from llmcurate.base.messages import decode

Task = dict[str, Any]  # of experiments, whose tasks are no messages yet
T = TypeVar("T")
R = TypeVar("R")
Self = TypeVar("Self", bound="TaskLoop")


@dataclass(frozen=True)
class Jobs:
    """The way a cluster is asked for workers. options: of sbatch, as KEY=VALUE; folder: OUT, which
    all machines must see; quiet: whether nobody is told how many have started."""

    options: Sequence[str]
    folder: Path
    quiet: bool = False


OnDeath = Callable[[T, Death], T]


class Engine(Protocol):
    """Where work runs. Use as a context manager; workers start with the first task. cpu: seconds
    that tasks have taken in workers so far."""

    cpu: float

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...

    def map(
        self,
        function: str,
        tasks: Iterable[T],
        result: type[R],
        on_death: OnDeath[T] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """(task, result) in the order of arrival. result: the type of what the function returns.
        When a worker dies, `on_death` says what to run instead, or raises; RunFailed ends
        everything."""
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
    def _send_tasks(self, function: str, waiting: deque[Any], source: Iterator[Any]) -> None:
        """Gives tasks to idle workers, starting those that are missing."""

    @abstractmethod
    def _answers(self) -> Iterator[tuple[Any, Answer | None]]:
        """(task, answer) of what has come, within half a second; None where the worker is lost,
        which is for no task to blame."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""

    def map(
        self,
        function: str,
        tasks: Iterable[T],
        result: type[R],
        on_death: OnDeath[T] | None = None,
    ) -> Iterator[tuple[T, R]]:
        """As Engine.map."""
        waiting: deque[T] = deque()
        source = iter(tasks)
        try:
            while refill(waiting, source, self._count) or self._working():
                self._send_tasks(function, waiting, source)
                for task, answer in self._answers():
                    if answer is None:
                        waiting.appendleft(task)
                    elif isinstance(answer, Death):
                        if on_death is None:
                            raise RunFailed(f"a worker died ({answer.describe()})")
                        waiting.appendleft(on_death(task, answer))
                    elif isinstance(answer, Failed):
                        raise answer.error()
                    else:
                        self.cpu += answer.cpu
                        yield task, decode(result, answer.result)
                self._tick()
        except BaseException:
            self.close()
            raise


def refill(waiting: deque[T], tasks: Iterator[T], count: int) -> bool:
    """Makes `waiting` hold that many tasks, if so many are left; whether it holds any. Tasks are
    made when workers are about to take them: what that costs, and holds, is for these alone."""
    waiting.extend(islice(tasks, max(0, count - len(waiting))))
    return bool(waiting)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far without compilation, which a machine does once:
    a forecast rests on work that grows with the input."""
    return time.process_time() - compile_time.seconds
