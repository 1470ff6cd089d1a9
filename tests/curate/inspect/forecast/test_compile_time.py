"""The time to compile kernels counts in no figure that a forecast uses."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from curate.engines.local import LocalEngine
from curate.inspect.forecast.forecast import Prices, forecast, package_table, run_figures
from curate.inspect.report import page
from curate.run import plan

PLUGINS = Path(__file__).parents[2] / "engines" / "plugins"
STEPS = ["compiling", "compiling_dedup"]


@pytest.fixture
def compiling(monkeypatch):
    """The plug-in, and a process clock that is as it was afterwards."""
    monkeypatch.setattr(time, "process_time", time.process_time)
    paths = [str(PLUGINS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.syspath_prepend(str(PLUGINS))
    import compiling

    monkeypatch.setattr(time, "process_time", lambda: compiling._clock() + compiling._added)
    monkeypatch.setattr(compiling, "places", set())
    return compiling


def compiles_first(monkeypatch, module, name, compiling):
    """The function compiles a kernel before it does its work."""
    function = getattr(module, name)

    def replaced(*arguments, **named):
        compiling.compile_at(name)
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, replaced)


def numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict | list):
        values = value.values() if isinstance(value, dict) else value
        return [number for part in values for number in numbers(part)]
    return [value] if isinstance(value, float) else []


def test_no_phase_of_a_run_counts_what_it_compiles(bench, make_pages, compiling, monkeypatch):
    compiles_first(monkeypatch, plan, "plan_reading", compiling)
    compiles_first(monkeypatch, page, "gather", compiling)
    source = bench.jsonl("in.jsonl", make_pages(30))
    outcome = bench.run(STEPS, source, read={"partition_bytes": 2000})
    in_driver = {"plan_reading", "gather", "the decisions"}
    assert in_driver <= compiling.places
    record = json.loads((bench.folder / "out" / "run.json").read_text())
    # In workers: at the first document, at the start and at the first sketch; then at the dedup.
    compiled = [stage["compiled"] for stage in record["stages"]]
    assert compiled == pytest.approx([3 * compiling.SECONDS, compiling.SECONDS])
    cpu = [[s["cpu"], s["start"], s.get("decided_cpu", 0.0)] for s in record["stages"]]
    assert 0 < sum(numbers([*cpu, record["driver"]["cpu"]])) < compiling.SECONDS
    figures = run_figures(record, "the run", package_table())
    predicted = forecast(outcome.plan, [figures], 1, Prices())
    assert predicted.missing == [] and 0 < predicted.total("cpu") < compiling.SECONDS


def test_no_task_of_a_worker_counts_what_it_compiles(compiling):
    with LocalEngine(1) as engine:
        list(engine.map("compiling:work", [{}, {}], dict))
        assert 0 <= engine.cpu < compiling.SECONDS
