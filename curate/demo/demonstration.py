"""`llmcurate demo`: write the small web, run the recipe over it, hold the result to the truth."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq

from curate.dedup.minhash.near_duplicates import DedupMinhash, predicted
from curate.demo.score import Result, format_table, score
from curate.demo.web import build_web, read_truth
from curate.documents.edits import EDITS, edits_of
from curate.documents.rejected import first_reasons, rejected_files
from curate.run.driver import run_planned
from curate.run.plan import plan_run
from curate.run.records import Options, Outcome, funnel, json_of, record
from curate.run.workspace import create, find
from curate.steps.recipe import Recipe, build, load
from llmcurate.base.disk.files import part_files, write_text
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import echo, echo_json, say

# Settings of url_filter, each a file with these lines: a domain with its subdomains; words, the
# second of which must not block Essex or a sextet.
LISTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "domains": ("blocked-domains.txt", ("luckyspins.example",)),
    "banned_words": ("blocked-words.txt", ("casino", "sex")),
}


def _result(out: Path) -> Result:
    kept: dict[str, str] = {}
    replaced: dict[str, Counter[str]] = {}
    cut = set()
    for path in part_files(out / "corpus"):
        for row in pq.read_table(path, columns=["id", "text", EDITS]).to_pylist():
            name = row["id"].strip("<>")
            kept[name] = row["text"]
            edits = edits_of(row)
            replaced[name] = Counter(edit.rule for edit in edits if edit.step == "pii")
            if any(edit.step == "dedup_suffix_array" for edit in edits):
                cut.add(name)
    rejected = {
        name.strip("<>"): (step, rule) for name, step, rule in first_reasons(rejected_files(out))
    }
    return Result(kept, rejected, replaced, frozenset(cut))


def _recipe(out: Path, sets: tuple[str, ...], quiet: bool) -> Recipe:
    lists = []
    for key, (name, lines) in LISTS.items():
        path = out / "web" / name
        if not path.exists() or path.read_text() != "\n".join([*lines, ""]):
            write_text(path, "\n".join([*lines, ""]))
        lists.append(f"url_filter.{key}={path}")
    missing = []
    model = []
    if find_spec("fasttext") is None:
        missing.append("language")
        say("no fasttext here: the demo does without its language step")
    else:
        from curate.demo.language import train_demo_model

        model = [f"language.model={train_demo_model(out / 'language', quiet)}"]
    if find_spec("torch") is None:
        missing.append("pretrain")
        say("no torch here: the demo stops at token shards (pip install 'llmcurate[train]')")
    models = () if any(s.startswith("language.model=") for s in sets) else tuple(model)
    recipe = load("demo", (*lists, *models, *sets))
    steps = [s for s in recipe.steps if s.name not in missing]
    if len(steps) == len(recipe.steps):
        return recipe
    return build("demo", steps, read=recipe.read, description=recipe.description)


def run_demo(
    out: Path, workers: int, as_json: bool, quiet: bool, sets: tuple[str, ...] = ()
) -> Outcome:
    """Leaves a workspace in `out`: web/ (archives, truth), runs/0001-demo with its report."""
    began = time.perf_counter()
    create(out)
    web = build_web(out / "web")
    truth = read_truth(web.truth)
    others = f"{web.others} other records (robots.txt, images, redirects)"
    say(f"wrote {counted(web.documents, 'page')} and {others} to {out / 'web'}", quiet)
    recipe = _recipe(out, sets, quiet)
    from curate.formats.inputs import plan_inputs

    inputs = [str(path) for path in web.paths]
    plan = plan_run(recipe, plan_inputs(inputs, recipe.read.partition_bytes))
    space = find(out)
    target = space.out_for("demo", plan.digest) if space else out / "runs" / "0001-demo"
    target = out / target.relative_to(out.resolve())
    outcome = run_planned(plan, target, Options(workers, quiet))
    near = next(s for s in recipe.steps if isinstance(s, DedupMinhash))
    similarities = {page.similarity for page in truth if page.similarity is not None}
    shares = {s: predicted(*near.banding, s) for s in similarities}
    rows = score(truth, _result(target), shares)
    echo(funnel(record(outcome)))
    if outcome.products and outcome.products[-1]["makes"] == "model":
        sample = outcome.products[-1]["summary"]["sample"]
        echo(f"a sample of the model: {' '.join(sample[:200].split())}")
    echo("\nwhat was planted, and what the steps did with it:")
    echo(format_table(rows))
    echo(f"\nreport: {target / 'report.html'}")
    beside = str(Path(sys.executable).parent / "llmcurate")
    command = "llmcurate" if shutil.which("llmcurate") else beside
    echo(f"next:   cd {out} && {command} tokenizer train --vocab 8000 && {command} pretrain")
    if as_json:
        plants = [asdict(row) | {"recall": row.recall} for row in rows]
        seconds = {"wall_seconds": round(time.perf_counter() - began, 1)}
        totals = json_of(outcome.totals()) | {"paths": outcome.paths()}
        echo_json({**totals, "plants": plants, **seconds})
    return outcome
