"""A worker started ahead is the engine's first one, and never outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from curate.cli.app import invoke
from curate.engines import idle_workers
from curate.engines.local import LocalEngine
from curate.run.messages import Sketched, StageTask


@pytest.fixture(autouse=True)
def nobody_waits():
    idle_workers.keep(0)
    idle_workers.stop()
    yield
    idle_workers.stop()
    idle_workers.keep(2)  # as conftest.py


def pid_of_worker(engine: LocalEngine) -> int:
    list(engine.map("builtins:bool", [{}], dict))
    (worker,) = engine._pool
    return worker.process.pid


def test_idle_workers_are_left_to_the_next_engine_where_that_is_wanted(tmp_path, monkeypatch):
    idle_workers.keep(1)
    with LocalEngine(1) as engine:
        first = pid_of_worker(engine)
    with LocalEngine(1) as engine:
        assert pid_of_worker(engine) == first
    monkeypatch.setenv("SOMETHING", "else")
    with LocalEngine(1) as engine:
        second = pid_of_worker(engine)
    assert second != first, "it was started with another environment"
    with LocalEngine(1) as engine:
        assert pid_of_worker(engine) == second, "the one that fits takes the place of the other"
    idle_workers.keep(0)
    idle_workers.stop()
    assert not psutil.pid_exists(first) and idle_workers.take_waiting() is None


def test_a_worker_that_was_at_work_is_not_left_to_the_next_engine():
    idle_workers.keep(1)
    with LocalEngine(1) as engine:
        engine._start().task = {"spec": "not finished"}
    assert idle_workers.take_waiting() is None


def test_the_engine_takes_the_worker_that_is_there() -> None:
    idle_workers.start()
    idle_workers.start()  # one is enough
    ((process, _),) = idle_workers._waiting
    with LocalEngine(1) as engine:
        tasks = [StageTask(0, Path("nowhere"))]
        with pytest.raises(Exception, match="nowhere"):
            list(engine.map("curate.run.worker.worker:sketch_partition", tasks, Sketched))
    assert process.poll() is not None and idle_workers.take_waiting() is None


def test_an_engine_with_variables_of_its_own_starts_its_own_worker() -> None:
    idle_workers.start()
    ((process, _),) = idle_workers._waiting
    try:
        with LocalEngine(1, environment={"X": "1"}) as engine:
            worker = engine._start()
            assert worker.process.pid != process.pid
    finally:
        idle_workers.stop()
    assert process.poll() is not None


def test_a_command_that_fails_leaves_no_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["filter", "c5", "nowhere.jsonl", "-o", "out"]) == 2
    assert "unknown step" in capsys.readouterr().err
    assert idle_workers.take_waiting() is None


def test_a_killed_parent_takes_its_worker_with_it() -> None:
    code = (
        "import time; from curate.engines import idle_workers; idle_workers.start()\n"
        "print(idle_workers._waiting[0][0].pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    for _ in range(100):
        if not psutil.pid_exists(worker) or psutil.Process(worker).status() == "zombie":
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")
