"""A worker decides on a corpus of one partition: the same bytes as where the driver does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from curate.dedup.exact import DedupExact
from curate.run import decisions
from curate.run.messages import Resolved, ResolveTask
from curate.run.stages import Stages
from llmcurate.base.errors import RunFailed, TooMuchRemoved
from tests.curate.command_line import environment
from tests.parameters import mostly_slow

NO_NUMBA = """
import sys
from curate.cli.app import invoke
assert invoke(["dedup", "--method", "minhash", "in.jsonl", "-o", "out", "--quiet"]) == 0
assert "numba" not in sys.modules
"""
METHODS = ["minhash", "exact", "bloom", "suffix_array", "passages", "semantic"]


@pytest.mark.parametrize("method", mostly_slow(METHODS, 4))
def test_worker_and_driver_decide_alike(bench, make_pages, monkeypatch, method):
    rows = make_pages(40)
    source = bench.jsonl("in.jsonl", [*rows, *({**row, "id": f"{row['id']}-2"} for row in rows)])
    steps = [{f"dedup_{method}": {"max_removal": 1.0}}]
    worker = bench.run(steps, source, out="worker")
    monkeypatch.setattr(Stages, "decides_in_worker", lambda *_: False)
    driver = bench.run(steps, source, out="driver")
    assert bench.bytes_of("worker") == bench.bytes_of("driver")
    for timed in ("seconds", "tasks_cpu"):
        worker.stages[0].decided.pop(timed)
        driver.stages[0].decided.pop(timed)
    assert worker.stages[0].decided == driver.stages[0].decided


@pytest.mark.parametrize("unit", ["documents", "bytes"])
@pytest.mark.parametrize(("gone", "stops"), [(0, False), (5, False), (6, True), (10, True)])
def test_a_dedup_may_remove_exactly_its_limit(unit, gone, stops):
    step = DedupExact(max_removal=0.5)
    removal = {"documents": [0, 10], "bytes": [0, 10], "most": ""} | {unit: [gone, 10]}
    with pytest.raises(TooMuchRemoved, match=f"{gone} of 10 {unit}") if stops else nullcontext():
        decisions.guard(step, **removal)
    decisions.guard(step, **(removal | {unit: [0, 0]}))


def test_the_guard_names_the_document_with_the_most_duplicates(bench):
    source = bench.jsonl("in.jsonl", [{"id": name, "text": "Text."} for name in "abc"])
    with pytest.raises(RunFailed, match=r"0\.5; a has the most duplicates \(2\); nothing was"):
        bench.run([{"dedup_exact": {"max_removal": 0.5}}], source)


def test_the_driver_of_a_small_run_loads_no_numba(bench, make_pages):
    bench.jsonl("in.jsonl", make_pages(5))
    command = [sys.executable, "-c", NO_NUMBA]
    subprocess.run(command, cwd=bench.folder, env=environment(), check=True, timeout=120)


def dies_once(task: ResolveTask) -> Resolved:
    """Decides, but in the first process that is asked to."""
    mark = Path(f"{task.own}.died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return decisions.resolve_one_partition(task)


def test_another_worker_decides_when_one_dies(bench, make_pages, monkeypatch):
    source = bench.jsonl("in.jsonl", make_pages(20))
    bench.run(["dedup_minhash"], source, out="undisturbed")
    monkeypatch.setattr("curate.run.stages.RESOLVE", f"{__name__}:dies_once")
    bench.run(["dedup_minhash"], source)
    (mark,) = bench.folder.glob("out/stages/*/*.died")
    mark.unlink()
    assert bench.bytes_of() == bench.bytes_of("undisturbed")
