"""`whatif --apply`: run the recipe of a finished run again, with other settings.

This is an ordinary run. Stages before the first changed step are reused; the others are computed.
"""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from curate.corpus.indexes import link
from curate.formats.inputs import InputPlan
from curate.formats.listing import find_files
from curate.inspect.whatif.question import Question, ask
from curate.run.driver import run_planned
from curate.run.ledger import Ledger
from curate.run.messages import Specification
from curate.run.plan import plan_run, stage_folder
from curate.run.records import Options, Outcome
from llmcurate.base.errors import UsageError


def apply(run: Path, sets: tuple[str, ...], out: Path | None, options: Options) -> Outcome:
    """Run a run's recipe again with the settings `sets`, into `out` or in the run's own folder.
    Raises UsageError if the run's stages are missing or its input has changed."""
    question = ask(run, sets)
    if not question.changes:
        raise UsageError(
            "--apply needs --set SECTION.KEY=VALUE with a setting that differs from the run's"
        )
    if question.corpus.is_home:
        raise UsageError(
            f"{run} is a HOME, and --apply works on an OUT; change the settings of a HOME with"
            " `llmcurate refresh RECIPE -o HOME --rebuild`"
        )
    first = stage_folder(run, question.folders[0])
    try:
        inputs = Specification.in_folder(first).inputs(first)
    except (OSError, ValueError):
        raise UsageError(f"{first} is missing: run the recipe again with these settings") from None
    plan = plan_run(question.now, inputs)
    if out is None or out.resolve() == run.resolve():
        out = run
    else:
        _copy_stages(question, run, out)
    if plan.stages[0].folder_name != question.folders[0]:
        check_unchanged(inputs)
    return run_planned(plan, out, options)


def check_unchanged(inputs: InputPlan) -> None:
    """Raise UsageError if an input file has changed since the run read it."""
    for file in inputs.files:
        try:
            files = find_files([file.path]).files
        except (UsageError, OSError):
            files = []
        if len(files) != 1 or (files[0].size, files[0].stamp) != (file.size, file.stamp):
            raise UsageError(
                f"{file.path} was changed or removed since the run: run the recipe again with these"
                " settings"
            )


def _copy_stages(question: Question, run: Path, out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"-o {out} is not empty: give a new folder")

    def link_or_copy(source: str, target: str) -> None:
        is_part = Path(source).name.startswith("part-")  # no run changes such a file
        (link if is_part else shutil.copy2)(Path(source), Path(target))

    with closing(Ledger(run)):  # holds the lock, so no other process works there
        for name in question.folders:
            source, target = (stage_folder(o, name) for o in (run, out))
            shutil.copytree(source, target, copy_function=link_or_copy)
            for folder in (target, *filter(Path.is_dir, target.rglob("*"))):
                folder.chmod(folder.stat().st_mode | stat.S_IRWXU)  # the run may be read-only
        with sqlite3.connect(run / "ledger.db") as a, sqlite3.connect(out / "ledger.db") as b:
            a.backup(b)
            b.execute("DELETE FROM lock")
