"""A real run: the costs it records, and that they forecast the run itself."""

from __future__ import annotations

import json

import pytest

from curate.inspect.forecast.forecast import Prices, forecast, package_table, read_figures
from curate.run.plan import make_plan
from curate.steps.recipe import load

STEPS = ["c4", {"dedup_exact": {"key": "url", "survivor": "newest"}}, "newline_runs"]
SMALL = {"partition_bytes": 8000, "batch_rows": 20}


@pytest.fixture(scope="module")
def ran(shared_bench, make_pages):
    """(run.json, OUT, the recipe's file, the input) of a run in several partitions."""
    source = shared_bench.jsonl("in.jsonl", make_pages(150))
    recipe = json.dumps({"name": "mine", "steps": STEPS, "read": SMALL})
    path = shared_bench.folder / "mine.yaml"
    path.write_text(recipe)
    shared_bench.run(recipe, source)
    out = shared_bench.folder / "out"
    return json.loads((out / "run.json").read_text()), out, path, source


def test_a_run_records_cpu_seconds_and_bytes_of_its_files(ran):
    record, out, _, _ = ran
    for stage in record["stages"]:
        assert {"read", "write", "start", *stage["steps"]} <= set(stage["cpu"])
        assert stage["start"][0] <= stage["start"][1] <= stage["cpu"]["start"]
        for kind in ("kept", "keys", "rejected"):
            files = (out / "stages" / stage["folder"]).glob(f"part-*.{kind}.parquet")
            assert stage["written"][kind] == sum(f.stat().st_size for f in files)
    first = record["stages"][0]
    sketches = list((out / "stages" / first["folder"]).glob("part-*.sketch-*.parquet"))
    assert first["written"]["sketch"] == sum(f.stat().st_size for f in sketches)
    assert first["decided_cpu"] > 0 and first["decided"]["tasks_cpu"] == 0.0  # too few to split
    assert first["written"]["decisions"] > 0
    assert set(record["driver"]["cpu"]) == {
        *("planning", "assembling", "report", "report, in workers")
    }


def test_seconds_that_compile_kernels_are_counted_apart(
    shared_bench, make_pages, tmp_path, monkeypatch
):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    steps = json.dumps({"name": "mine", "steps": ["newline_runs"]})
    source = shared_bench.jsonl("few.jsonl", make_pages(5))
    stages = []
    for out in ("compiles", "loads"):
        shared_bench.run(steps, source, out=out)
        record = json.loads((shared_bench.folder / out / "run.json").read_text())
        stages.append(record["stages"][0])
    compiles, loads = stages
    assert compiles["compiled"] > 0.1 and loads["compiled"] == 0.0
    assert compiles["cpu"]["newline_runs"] < compiles["compiled"]


def test_a_run_forecasts_itself(ran):
    record, out, path, source = ran
    plan = make_plan(load(str(path), ()), [str(source)])
    predicted = forecast(plan, [read_figures(out, package_table())], 1, Prices())
    assert predicted.missing == [] and predicted.documents == 150
    stages = {s.name: s for s in predicted.stages}
    for stage in record["stages"]:
        stage_forecast = stages[stage["folder"]]
        assert stage_forecast.documents_in == pytest.approx(stage["read"])
        assert stage_forecast.documents_out == pytest.approx(stage["kept"])
        written = {k: n for k, n in stage["written"].items() if k != "decisions"}
        assert stage_forecast.bytes_out == pytest.approx(sum(written.values()))
        seconds = {step.label.partition(":")[0]: step.cpu for step in stage_forecast.steps}
        del seconds["start"]  # of a partition and a worker: between the least and the most
        assert seconds == pytest.approx({k: v for k, v in stage["cpu"].items() if k != "start"})
    decided, first = stages["dedup_exact: deciding"], record["stages"][0]
    seconds = first["decided_cpu"] + first["decided"]["tasks_cpu"]
    assert decided.cpu == pytest.approx(seconds)


def test_a_run_again_over_the_same_input_has_the_same_records(ran, shared_bench):
    record, out, path, source = ran
    shared_bench.run(path.read_text(), source)  # nothing to do
    assert json.loads((out / "run.json").read_text())["stages"] == record["stages"]
