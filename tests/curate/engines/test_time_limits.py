"""Workers that send nothing for longer than their limit are killed, and others are not."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from curate.engines import worker
from curate.engines.base import Call, Death
from curate.engines.hosts import Host
from curate.engines.local import LocalEngine
from curate.run.messages import LOADING, READING, StageTask
from curate.run.stages import find_culprit
from llmcurate.base.errors import RunFailed
from tests.parameters import mostly_slow

LIMIT = 0.3  # seconds


def spin() -> None:
    """For ever, in C, where no thread of Python runs."""
    re.match(r"(a+)+$", "a" * 99 + "b")


def hang(task: dict) -> None:
    worker.beat(3, 5, LIMIT, of_cpu=task["of_cpu"])
    spin() if task["spins"] else time.sleep(600)


def end_early(task: dict) -> dict:
    """A task that says what it works on, or one that dies in silence before it does."""
    if task["part"]:
        until = time.process_time() + 2 * LIMIT
        while time.process_time() < until:
            pass
        os._exit(3)
    worker.beat(3, 5, LIMIT, of_cpu=True)  # the time that others take does not count
    return {}


def wait_long(task: dict) -> dict:
    """Silent for longer than the limit, for a reason; then heard again and again."""
    worker.beat(3, 5, LIMIT, of_cpu=task.get("of_cpu", False))
    for name in task.get("says", ()):
        getattr(worker, name)()
    time.sleep(2 * LIMIT if task.get("silent", True) else 0)
    for _ in range(task.get("beats", 0)):
        worker.beat(6, 8, 4 * LIMIT)  # a busy machine may let it wait for one LIMIT
        time.sleep(LIMIT / 6)
    return {}


def death_of(engine: LocalEngine, task: dict) -> Death:
    deaths = []

    def on_death(task: dict, death: Death) -> dict:
        deaths.append(death)
        raise RunFailed("it died")

    with pytest.raises(RunFailed, match="it died"):
        list(engine.map(f"{__name__}:hang", [task], dict, on_death))
    return deaths[0]


@pytest.mark.parametrize(
    ("spins", "of_cpu"), mostly_slow([(True, True), (False, False), (True, False)], 2)
)
def test_a_worker_is_ended_when_its_time_is_over(spins, of_cpu):
    death = death_of(LocalEngine(1), {"spins": spins, "of_cpu": of_cpu})
    assert death == Death(-9, (3, 5), LIMIT)
    assert death.describe() == "took longer than 0.3 s"


def test_a_task_is_not_blamed_for_the_document_reported_by_the_previous_task():
    deaths = []

    def on_death(task: dict, death: Death) -> dict:
        deaths.append(death)
        raise RunFailed("it died")

    with pytest.raises(RunFailed, match="it died"), LocalEngine(1) as engine:
        list(engine.map(f"{__name__}:end_early", [{"part": 0}, {"part": 1}], dict, on_death))
    assert deaths == [Death(3, None)]


@pytest.mark.parametrize(
    "task",
    [
        {"of_cpu": True},
        {"says": ["_compiling"]},
        {"says": ["waiting_for_kernel"]},
        {"silent": False, "beats": 12},
    ],
    ids=["waits for its input", "compiles", "waits for a kernel", "is slow with many batches"],
)
def test_a_worker_is_not_killed_because_it(engine, task):
    assert list(engine.map(f"{__name__}:wait_long", [task], dict)) == [(task, {})]


def test_time_limits_pause_while_nobody_reads_worker_messages(engine):
    quick = {"part": 0, "silent": False}
    slow = {"part": 1, "silent": False, "beats": 9}
    results = engine.map(f"{__name__}:wait_long", [quick, slow], dict)
    first, _ = next(results)
    time.sleep(5 * LIMIT)
    assert sorted([first["part"], *(task["part"] for task, _ in results)]) == [0, 1]


def test_a_cluster_host_reports_the_same_death():
    host = Host({}, str(Path.cwd()))
    answer = host.run(Call(f"{__name__}:hang", '{"spins": true, "of_cpu": false}'))
    host.end()
    assert answer == Death(-9, (3, 5), LIMIT)


@pytest.mark.parametrize(
    ("documents", "line"),
    [
        (
            READING,
            "a worker took longer than 0.3 s twice while reading a.gz; take that file out or",
        ),
        (LOADING, "a worker took longer than 0.3 s twice before the first document of 00-x: check"),
        (None, "a worker took longer than 0.3 s twice before the first document of 00-x: check"),
    ],
)
def test_a_time_out_without_a_document_names_what_was_running(documents, line):
    inputs = SimpleNamespace(
        files=[SimpleNamespace(rel="a.gz")], partitions=[[SimpleNamespace(file=0)]]
    )
    stage = SimpleNamespace(folder_name="00-x")
    decide = find_culprit(SimpleNamespace(inputs=inputs), stage, quiet=True)
    death = Death(-9, documents, LIMIT)
    task = StageTask(0, Path("stage.json"))
    assert decide(task, death) == task
    with pytest.raises(RunFailed, match=line):
        decide(task, death)
