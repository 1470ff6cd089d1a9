"""A run with other settings, in place or beside it: what was measured once is not measured again.

It is the run that `llmcurate run` would make, over the same cache: stages before the first changed
step are reused as they are. That step's stage is decided anew from its stored rows where only
limits changed (stored.py), so it gives the same bytes; what stands behind a cut or a dedup sees
other documents and is run.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

from curate.errors import UsageError
from curate.formats.inputs import InputPlan, find_files
from curate.ledger import Ledger
from curate.outcome import Options, Outcome
from curate.plan import RunPlan, plan_run, stage_folder
from curate.progress import say
from curate.run import run_planned
from curate.whatif.question import Question, ask


def apply(run: Path, sets: tuple[str, ...], out: Path | None, options: Options) -> Outcome:
    """Runs the recipe of a finished run with other settings, into `out` or in place. UsageError
    where its stages are gone or its input has changed."""
    question = ask(run, sets)
    if not question.changes:
        raise UsageError("--apply needs --set SECTION.KEY=VALUE: other settings than the run had")
    was, now = _plans(question)
    if out is not None and out.resolve() != run.resolve():
        _beside(question, run, out)
    else:
        out = run
    changed = [i for i, (a, b) in enumerate(zip(was.stages, now.stages, strict=True))
               if a.key != b.key]  # fmt: skip
    if changed[:1] == [0]:
        _unchanged(now.inputs)
    if changed and _by_limits(question, was, now, changed[0]):
        first = changed[0]
        folder = stage_folder(out, was.stages[first].folder_name)
        steps = [s.identity() for s in was.stages[first].steps]
        now.stages[first].reuse = {"folder": str(folder), "steps": steps}
        say(f"deciding anew: {now.stages[first].folder_name}", options.quiet)
    return run_planned(now, out, options)


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


def _by_limits(question: Question, was: RunPlan, now: RunPlan, stage: int) -> bool:
    """Whether other limits of steps are all that changed in the stage, and its rows are there."""
    again = {question.stage[at] for at, _ in question.again.values()}
    old, new = was.stages[stage], now.stages[stage]
    same = (old.apply.identity() if old.apply else None) == (
        new.apply.identity() if new.apply else None
    )
    return (
        stage not in again
        and same
        and _whole(question, old.folder_name, len(now.inputs.partitions))
    )


def _whole(question: Question, name: str, parts: int) -> bool:
    from curate.stage_files import part_path
    from curate.whatif.verdicts import Decider

    folder = stage_folder(question.out, name)
    kinds = ("kept", "keys", "rejected")
    if not all(part_path(folder, p, k).exists() for p in range(parts) for k in kinds):
        return False
    from curate.whatif.scores import read

    Decider(question, read(question.out, question.columns))  # refuses scores that do not fit
    return True


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
