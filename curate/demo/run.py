"""`llmcurate demo`: write the small web, run the recipe over it, hold the result to the truth."""

from __future__ import annotations

import filecmp
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.demo.score import format_table, score
from curate.demo.web import DemoWeb, build_web
from curate.plan import plan_run
from curate.progress import say
from curate.recipe import build, load
from curate.report import funnel
from curate.report.records import record
from curate.run import Options, Outcome, run_planned
from curate.workspace import create, find


def _kept_ids(out: Path) -> set[str]:
    ids: set[str] = set()
    for path in sorted((out / "corpus").glob("part-*.parquet")):
        ids.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
    return ids


def _rejected(out: Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for path in sorted((out / "rejected").glob("part-*.parquet")):
        rows = pq.read_table(path, columns=["id", "step", "rule"])
        columns = (rows[name].to_pylist() for name in ("id", "step", "rule"))
        for name, step, rule in zip(*columns, strict=True):
            found[name] = (step, rule)
    return found


def _write_web(folder: Path) -> DemoWeb:
    """Writes the web; files that hold the same bytes already stay untouched, so that a second
    demo finds the same input."""
    with tempfile.TemporaryDirectory() as aside:
        web = build_web(Path(aside))
        folder.mkdir(parents=True, exist_ok=True)
        for path in (*web.paths, web.truth):
            target = folder / path.name
            if not target.exists() or not filecmp.cmp(path, target, shallow=False):
                shutil.copyfile(path, target)
    paths = [folder / p.name for p in web.paths]
    return replace(web, paths=paths, truth=folder / web.truth.name)


def run_demo(
    out: Path, workers: int, as_json: bool, quiet: bool, sets: tuple[str, ...] = ()
) -> Outcome:
    """Leaves a workspace in `out`: web/ (archives, truth), runs/0001-demo with its report."""
    began = time.perf_counter()
    create(out)
    web = _write_web(out / "web")
    say(f"wrote {web.documents} pages and {web.others} other records to {out / 'web'}", quiet)
    recipe = load("demo", sets)
    if find_spec("torch") is None:
        say("no torch here: the demo stops at token shards (pip install 'llmcurate[train]')")
        steps = [s for s in recipe.steps if s.name != "pretrain"]
        recipe = build("demo", steps, read=recipe.read, description=recipe.description)
    from curate.formats.inputs import plan_inputs

    inputs = [str(path) for path in web.paths]
    plan = plan_run(recipe, plan_inputs(inputs, recipe.read.partition_bytes))
    space = find(out)
    target = space.out_for("demo", plan.digest) if space else out / "runs" / "0001-demo"
    target = out / target.relative_to(out.resolve())
    outcome = run_planned(plan, target, Options(workers, quiet))
    rows = score(web.truth, _kept_ids(target), _rejected(target))
    result: dict[str, Any] = {**outcome.totals(), "paths": outcome.paths()}
    print(funnel.text(record(outcome)))
    if outcome.products and outcome.products[-1]["makes"] == "model":
        sample = outcome.products[-1]["summary"]["sample"]
        print(f"a sample of the model: {' '.join(sample[:200].split())}")
    print("\nwhat was planted, and what the steps did with it:")
    print(format_table(rows))
    print(f"\nreport: {target / 'report.html'}")
    beside = str(Path(sys.executable).parent / "llmcurate")
    command = "llmcurate" if shutil.which("llmcurate") else beside
    print(f"next:   cd {out} && {command} tokenizer train --vocab 8000 && {command} pretrain")
    if as_json:
        result["plants"] = [asdict(row) for row in rows]
        result["wall_seconds"] = round(time.perf_counter() - began, 1)
        print(json.dumps(result, ensure_ascii=False))
    return outcome
