"""A run with other settings, in place or beside it: what was measured once is not measured again.

It is the run that `llmcurate run` would make, over the same cache: stages before the first changed
step are reused as they are. Of the others each takes over, from what it stored, the documents that
enter it as they did before; where limits of its steps changed, it decides them anew (stored.py).
Only documents that are new to a stage, enter it otherwise or pass an edit now are measured. Dedups
resolve over old sketches and new ones. A stage of which that cannot be done runs as always, and
says why.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from curate.corpus.stage_files import part_path
from curate.errors import UsageError
from curate.formats.inputs import InputPlan, find_files
from curate.inspect.report.write import write_records
from curate.inspect.whatif.question import Question, ask
from curate.inspect.whatif.stored import NEVER
from curate.run.driver import run_planned
from curate.run.ledger import Ledger
from curate.run.outcome import Options, Outcome
from curate.run.plan import MapStage, RunPlan, decisions_path, plan_run, sketch_kind, stage_folder
from curate.steps.contracts import CorpusStep

KEPT = ("kept", "keys", "rejected")  # the files of a partition that deciding anew needs


def apply(run: Path, sets: tuple[str, ...], out: Path | None, options: Options) -> Outcome:
    """Runs the recipe of a finished run with other settings, into `out` or in place. UsageError
    where its stages are gone or its input has changed."""
    question = ask(run, sets)
    if not question.changes:
        raise UsageError("--apply needs --set SECTION.KEY=VALUE: other settings than the run had")
    if question.corpus.is_home:
        raise UsageError(
            f"{run}: --apply makes the run of one OUT; a HOME takes other settings with `llmcurate"
            " refresh RECIPE -o HOME --rebuild`"
        )
    was, now = _plans(question)
    if out is not None and out.resolve() != run.resolve():
        _beside(question, run, out)
    else:
        out = run
    changed = [i for i, (a, b) in enumerate(zip(was.stages, now.stages, strict=False))
               if a.key != b.key]  # fmt: skip
    if changed[:1] == [0]:
        _unchanged(now.inputs)
    for a, b in zip(was.stages, now.stages, strict=False):
        b.why_sketched = _why_sketched(question, a, b)
    for index in range(changed[0] if changed else len(now.stages), len(now.stages)):
        _reuse(question, was, now, index, out)
    if any(s.reuse and s.reuse["steps"] != [x.identity() for x in s.steps] for s in now.stages):
        _check_scores(question)
    return run_planned(now, out, options, write_records)


def _check_scores(question: Question) -> None:
    """UsageError where stored scores do not give the marks that are stored."""
    from curate.inspect.whatif.scores import read
    from curate.inspect.whatif.verdicts import Decider

    Decider(question, read(question.corpus, question.columns))


def _reuse(question: Question, was: RunPlan, now: RunPlan, index: int, out: Path) -> None:
    """Says of a stage where the first run stored what it measured, or why that is of no help."""
    parts = len(now.inputs.partitions)
    new = now.stages[index]
    if index >= len(was.stages) or was.stages[index].labels != new.labels:
        new.why = "the recipe is cut into other stages"
        return
    old = was.stages[index]
    before = was.stages[index - 1] if index else None
    entered = None
    if before is not None and before.key != now.stages[index - 1].key:
        entered = stage_folder(out, before.folder_name)
    settings = _identity(old.apply) == _identity(new.apply)
    decisions = decisions_path(out, before) if before and old.apply and settings else None
    folders = [stage_folder(out, old.folder_name), *([entered] if entered else [])]
    new.why = _hindrance(question, old, new, index)
    for folder in folders:
        if not all(part_path(folder, p, k).exists() for p in range(parts) for k in KEPT):
            new.why = new.why or f"{folder} is gone, or lacks parts"
    if decisions is not None and not decisions.exists():
        new.why = new.why or f"{decisions} is gone"
    if new.why:
        return
    sketched = old.sketch is not None and not new.why_sketched
    new.reuse = {
        "key": old.key,
        "folder": str(folders[0]),
        "steps": [s.identity() for s in old.steps],
        "input": str(entered) if entered else None,
        "decisions": str(decisions) if decisions else None,
        "same_settings": settings,
        "earlier": [label for stage in now.stages[:index] for label in stage.labels],
        "sketch": sketch_kind(old) if sketched else None,
        "pages_until": _pages_until(now, index),
    }


def _why_sketched(question: Question, old: MapStage, new: MapStage) -> str:
    """Why a stage's old sketches are of no help; empty where they are, or there are none."""
    if old.sketch is None or new.sketch is None or old.sketch_key == new.sketch_key:
        return ""
    label = new.sketch.label
    if label != old.sketch.label:
        return "the recipe is cut into other stages"
    a, b = (s.sketch_identity() for s in (old.sketch, new.sketch))
    if a != b:
        names = [n for n in question.changes if n.startswith(f"{label}.")]
        settings = a["settings"].keys() | b["settings"].keys()
        keys = {k for k in settings if a["settings"].get(k) != b["settings"].get(k)}
        # Sketches may know a setting by another name.
        named = [n for n in names if n.partition(".")[2] in keys] or names
        return f"{' and '.join(named) or label} change{'s' * (len(named) < 2)} what is sketched"
    if old.key != new.key and new.sketch.whole_batch:
        return f"{label} looks at whole batches"
    return ""


def _identity(step: CorpusStep | None) -> dict[str, Any] | None:
    return step.identity() if step else None


def _hindrance(question: Question, old: MapStage, new: MapStage, index: int) -> str:
    """Why, by its steps, what a stage measured is of no help; empty where it is."""
    other = [n for n, (at, _) in question.again.items() if question.stage[at] == index]
    own = [n for n in other if n.partition(".")[0] in {s.label for s in new.steps}]
    if own:
        return f"{own[0]} changes what is measured, or what is cut"
    if (old.apply is None) != (new.apply is None) or len(old.steps) != len(new.steps):
        return "the recipe is cut into other stages"
    batches = [s.label for s in (new.apply, *new.steps) if s is not None and s.whole_batch]
    if batches:
        return f"{batches[0]} looks at whole batches"
    return ""


def _pages_until(plan: RunPlan, index: int) -> int:
    """The place of the stage's last step that reads pages; NEVER where a later stage has one."""

    def reads(step: Any) -> bool:
        return step is not None and (step.name == "extract" or step.before_extract)

    if any(reads(s) for stage in plan.stages[index + 1 :] for s in stage.steps):
        return NEVER
    stage = plan.stages[index]
    chain = [*([None] if stage.apply else []), *stage.steps]
    return max((i for i, s in enumerate(chain) if reads(s)), default=-1)


def _plans(question: Question) -> tuple[RunPlan, RunPlan]:
    """The run's own plan, as its folders say, and the one with other settings."""
    stages = question.record["stages"]
    first = question.out / "stages" / stages[0]["folder"]
    try:
        spec = json.loads(sorted(first.glob("stage*.json"))[0].read_text(encoding="utf-8"))
        inputs = InputPlan.load(spec["plan"])
    except (OSError, IndexError, ValueError, KeyError, TypeError):
        raise UsageError(f"{first} is gone: run the recipe anew with these settings") from None
    was, now = (plan_run(recipe, inputs) for recipe in (question.was, question.now))
    if [s.folder_name for s in was.stages] != [s["folder"] for s in stages]:
        raise UsageError(
            f"{question.out} was made by another version, or files that its steps read have"
            " changed: run the recipe anew with these settings"
        )
    return was, now


def _unchanged(inputs: InputPlan) -> None:
    """UsageError where a file is not the one that the run read."""
    for file in inputs.files:
        try:
            found = find_files([file.path])[0]
        except (UsageError, OSError):
            found = []
        if len(found) != 1 or (found[0].size, found[0].stamp) != (file.size, file.stamp):
            raise UsageError(
                f"{file.path} has changed or is gone since the run: run the recipe anew with these"
                " settings"
            )


def _beside(question: Question, run: Path, out: Path) -> None:
    """The run's stages and ledger in another folder. Parts of stages are hard links: a run only
    ever replaces them. The rest is copied."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"-o {out} is not empty: name a new folder")
    ledger = Ledger(run)  # nobody works there meanwhile
    try:
        for stage in question.record["stages"]:
            source, target = (stage_folder(o, stage["folder"]) for o in (run, out))
            shutil.copytree(source, target, copy_function=_linked)
        with sqlite3.connect(run / "ledger.db") as a, sqlite3.connect(out / "ledger.db") as b:
            a.backup(b)
            b.execute("DELETE FROM lock")
    finally:
        ledger.close()


def _linked(source: str, target: str) -> None:
    if Path(source).name.startswith("part-") and source.endswith(".parquet"):
        try:
            os.link(source, target)
            return
        except OSError:  # another file system
            pass
    shutil.copy2(source, target)
