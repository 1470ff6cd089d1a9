"""Tasks whose workers are lost are retried, unless the task itself keeps losing machines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from curate.engines.base import Answer, Call, Done, Hello
from curate.engines.hosts import LOST, HostsEngine
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.messages import Task
from llmcurate.version import __version__

Fate = Callable[[Task], str | None]  # the machine that is lost with it


class Machines(HostsEngine):
    """Workers that do all that they have at once, unless their machine is lost."""

    name, logs = "The cluster", "its logs"

    def __init__(self, workers: int, fate: Fate) -> None:
        super().__init__(None, lambda: None, None, ())
        self._workers, self._fate = workers, fate

    def _connect(self) -> None:
        self._count = self._workers

    def _starting(self) -> int:
        return 0

    def _start(self, count: int) -> None:
        self._idle += range(count)

    def _hand_out(self, worker: int, call: Call, task: Task) -> None:
        self._busy[object()] = (worker, task)

    def _answers(self) -> Iterator[tuple[Task, Answer | None]]:
        at_work, self._busy = [task for _, task in self._busy.values()], {}
        for task in at_work:
            machine = self._fate(task)
            if machine is not None:
                self._count_loss(task, machine)
            yield task, None if machine else Done("{}", 0.0)

    def close(self) -> None:
        pass


def parts(engine: Machines, count: int) -> list[int]:
    return [task.part for task, _ in engine.map("x:work", map(Task, range(count)), dict)]


def test_a_task_that_keeps_losing_its_machine_ends_the_run():
    """Of eight workers a machine; what is lost beside it is lost less often."""
    times: Counter[int] = Counter()

    def fate(task: Task) -> str | None:
        times[task.part] += 1
        return f"machine {times[5]}" if task.part == 5 or times[task.part] == 1 else None

    with pytest.raises(RunFailed, match=r"^The cluster lost the worker of x:work 5 4 times \(see"):
        parts(Machines(8, fate), 100)


def test_a_task_that_is_often_lost_where_others_are_too_is_done_at_last():
    """A quarter of all that is handed to forty workers is lost, each time with another machine."""
    draw, times = random.Random(0), Counter[int]()

    def fate(task: Task) -> str | None:
        times[task.part] += 1
        return f"machine {sum(times.values())}" if draw.random() < 0.25 else None

    assert sorted(parts(Machines(40, fate), 2000)) == list(range(2000))
    assert max(times.values()) > LOST + 1


def test_a_machine_is_counted_once_for_all_tasks_that_it_had():
    engine = Machines(4, lambda task: None)
    for _ in range(9):
        engine._count_loss({"part": 1}, "one machine")
    assert len(engine._losses) == 1


def test_if_workers_start_in_another_folder_absolute_paths_are_advised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engine = Machines(1, lambda task: None)
    engine._shared = [Path("in.jsonl")]
    assert engine.must_see() == [f"{tmp_path}/in.jsonl", str(tmp_path)]
    hello = Hello(__version__, "n1", (str(tmp_path),))
    with pytest.raises(UsageError, match=f"see {tmp_path}: name all files by absolute paths"):
        engine._accept(hello)
