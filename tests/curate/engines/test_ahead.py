"""A worker started ahead is the engine's first one, and never outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from curate.cli import invoke
from curate.engines import ahead
from curate.engines.local import LocalEngine


def test_the_engine_takes_the_worker_that_is_there() -> None:
    ahead.start()
    ahead.start()  # one is enough
    (process,) = ahead._waiting
    with LocalEngine(1) as engine:
        tasks = [{"spec": "nowhere"}]
        with pytest.raises(Exception, match="nowhere"):
            list(engine.map("curate.stage:sketch_partition", tasks))
    assert process.poll() is not None and ahead.take() is None


def test_an_engine_with_variables_of_its_own_starts_its_own_worker() -> None:
    ahead.start()
    (process,) = ahead._waiting
    try:
        with LocalEngine(1, environment={"X": "1"}) as engine:
            worker = engine._start()
            assert worker.process.pid != process.pid
    finally:
        ahead.stop()
    assert process.poll() is not None


def test_a_command_that_fails_leaves_no_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["filter", "c5", "nowhere.jsonl", "-o", "out"]) == 2
    assert "unknown step" in capsys.readouterr().err
    assert ahead.take() is None


def test_a_killed_parent_takes_its_worker_with_it() -> None:
    code = (
        "import time; from curate.engines import ahead; ahead.start()\n"
        "print(ahead._waiting[0].pid, flush=True); time.sleep(60)"
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
