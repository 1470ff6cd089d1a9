"""`llmcurate check`: compare files of a run or of HOME (all refreshes) with their checksums."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from curate.corpus import indexes
from curate.corpus.manifests import manifest_path, part_path
from curate.formats.inputs import InputPlan
from curate.inspect.whatif.apply import check_unchanged
from curate.run.driver import run_planned
from curate.run.homes import ANEW, FILE, FOLDER, RUNS, manifest, sealed_rows
from curate.run.intact import EXTRA, MOST_NAMED, corpus_seals, extra_files, place
from curate.run.ledger import Ledger, ledger_path
from curate.run.messages import Specification
from curate.run.plan import RunPlan, plan_run
from curate.run.records import Options, read_record
from curate.steps.recipe import load
from llmcurate.base.disk import seals
from llmcurate.base.disk.files import is_below
from llmcurate.base.disk.seals import Seal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.terminal import Progress

Row = tuple[str, int | None]  # a row of the ledger: stage and partition (None: whole stage)


class Fault(NamedTuple):
    path: str
    what: str


@dataclass
class Check:
    """The result of comparing files with their checksums."""

    JSON = ("out", "files", "faulty", "faults=first", "repaired")
    out: Path
    files: int = 0  # number of files compared
    faults: dict[str, str] = field(default_factory=dict)  # path -> what is wrong with the file
    rows: dict[str, Row] = field(default_factory=dict)  # file -> (stage, partition) to recompute
    repaired: bool = False  # True if all faulty files are recomputed

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return not self.faults

    @property
    def faulty(self) -> int:
        """The number of files that are missing, changed or unexpected."""
        return len(self.faults)

    @property
    def first(self) -> list[Fault]:
        """The faults to show: the first ones when sorted by path."""
        return [Fault(*fault) for fault in sorted(self.faults.items())[:MOST_NAMED]]

    def text(self) -> str:
        """Return the lines for the terminal: the first faults and the counts."""
        lines = [f"{path} {what}" for path, what in self.first]
        if self.faulty > MOST_NAMED:
            lines.append(f"and {counted(self.faulty - MOST_NAMED, 'file')} more")
        count = counted(self.faulty, "file")
        end = f"{count} missing, changed or unexpected" if self.faults else "all intact"
        lines.append(f"{counted(self.files, 'file')} compared: {end}")
        return "\n".join(lines)


def check(out: Path, options: Options) -> Check:
    """Compare all files in the folder `out` with their checksums. The folder is a run's OUT, token
    shards or a tokenizer that a command made, or the HOME of a refresh (its snapshots and indexes
    are compared). Raises UsageError for any other folder."""
    result = Check(out)
    home = (out / FILE).is_file()
    if not home and not ledger_path(out).is_file() and not manifest_path(out / "corpus").is_file():
        raise UsageError(f"{out} holds no finished run: give an OUT, or a HOME")
    _compare(_of_home(out, result) if home else _of_out(out, result), result, options)
    return result


def repair(out: Path, options: Options) -> Check:
    """Check the files and recompute the faulty ones. Raises RunFailed if that is not possible."""
    before = check(out, options)
    if before.passed:
        return before
    if (out / FILE).is_file():
        raise RunFailed(way_out(before))
    path = ledger_path(out)
    ledger = Ledger(path.parent)
    try:
        last = ledger.last_run()
        ledger.doubt_run()
        plan = _plan(path.parent, last[0] if last else "")
        if plan is None:
            command = read_record(path.parent)["command"] or "the command of that run"
            raise RunFailed(
                f"{out} cannot be repaired: recipe.yaml and stages/ do not record how it was made;"
                f" repeat {command}"
            )
    finally:
        ledger.close()
    run_planned(plan, out, options)
    after = check(out, options)
    if after.rows:  # files of stages that the plan does not use: forget them
        ledger = Ledger(path.parent)
        for file, (stage, part) in after.rows.items():
            if part is None:
                ledger.forget_stage(stage)
            else:
                ledger.forget_part(stage, part)
            del after.faults[file]
        ledger.close()
    after.repaired = after.passed
    return after


def way_out(home: Check) -> str:
    """Return a sentence that names a faulty file of a HOME and says how to go on without it."""
    db = str(home.out / FILE)
    if db in home.faults:
        return f"{db} {home.faults[db]}: {ANEW}"
    file, what = next(iter(home.faults.items()))
    path = shlex.quote(str(home.out))
    return (
        f"{file} {what}: restore it from a backup, or ingest all inputs again without older"
        f" snapshots: `llmcurate refresh -o {path} --abandon --rebuild --keep 1 RECIPE IN...`"
    )


def _plan(home: Path, digest: str) -> RunPlan | None:
    plans = [InputPlan((), ())]
    for folder in home.glob("stages/00-*"):
        with suppress(OSError, ValueError):
            plans.append(Specification.in_folder(folder).inputs(folder))
    for inputs in plans:
        with suppress(LlmcurateError, OSError):
            plan = plan_run(load(str(home / "recipe.yaml")), inputs)
            if plan.digest == digest:
                break
    else:
        return None
    try:
        check_unchanged(inputs)
    except UsageError as error:
        raise RunFailed(str(error)) from None
    return plan


def _compare(files: Iterator[tuple[Path, Seal]], result: Check, options: Options) -> None:
    workers = options.count()

    def each() -> Iterator[tuple[Path, Seal]]:
        for file in files:
            result.files += 1
            yield file

    tasks = seals.tasks(each())
    with (
        ThreadPoolExecutor(workers) as pool,
        Progress("check", 0, options.quiet) as progress,
    ):
        while window := list(islice(tasks, 4 * workers)):
            progress.total += len(window)
            for compared in pool.map(seals.compare, window):
                result.faults |= compared.faults
                progress.update(note=counted(result.files, "file"))
    result.rows = {path: row for path, row in result.rows.items() if path in result.faults}


def _of_index(folder: Path, result: Check) -> Iterator[tuple[Path, Seal]]:
    record = indexes.record_of(folder)
    if record is None:
        result.faults[str(folder / indexes.RECORD)] = "is damaged"
    else:
        yield from ((folder / n, s) for n, s in record.files.items() if is_below(n))


def _of_home(home: Path, result: Check) -> Iterator[tuple[Path, Seal]]:
    for folder in sorted((home / FOLDER).glob("[!.]*")):
        if folder.is_dir():
            try:
                files = manifest(folder)["files"]
            except RunFailed:
                result.faults[str(folder)] = "has no readable manifest"
                continue
            yield from ((folder / name, [None, entry["sha256"]]) for name, entry in files.items())
            extra = [p for p in folder.glob("[!.]*") if p.name not in files]
            result.faults |= {str(p): EXTRA for p in extra}
    for path in sorted((home / RUNS).glob(f"*/{indexes.FOLDER}/*/{indexes.RECORD}")):
        yield from _of_index(path.parent, result)
    try:
        for table, row in sealed_rows(home, "refreshes", "inputs", "removals", "facts"):
            if row is None:
                result.faults[str(home / FILE)] = f"has a damaged row of {table}"
            elif table == "facts" and row[0].startswith("files "):
                refresh = row[0].removeprefix("files ")
                for name, sealed in json.loads(row[1]).items():
                    # Pruned files are not faults.
                    if is_below(name) and (home / name.partition("/")[0] / refresh).is_dir():
                        yield home / name, sealed
    except sqlite3.DatabaseError as error:
        result.faults[str(home / FILE)] = f"is damaged ({error})"


def _of_out(out: Path, result: Check) -> Iterator[tuple[Path, Seal]]:
    result.faults |= {str(path): EXTRA for path in extra_files(out)}
    yield from corpus_seals(out)
    for path in sorted(out.glob(f"{indexes.FOLDER}/*/{indexes.RECORD}")):
        yield from _of_index(path.parent, result)
    path = ledger_path(out)
    if not path.is_file():
        return
    ledger = Ledger.to_read(path)
    try:
        finished = [(place(out, ledger, n), s) for n, s, _ in ledger.files()]
        corpus = {str(file) for file, _ in corpus_seals(out)}
        yield from ((file, seal) for file, seal in finished if str(file) not in corpus)
        for row, file, sealed in _of_rows(ledger, path.parent, result):
            result.rows[str(file)] = row
            yield file, sealed
    except sqlite3.DatabaseError as error:
        result.faults[str(path)] = f"is damaged ({error})"
    finally:
        ledger.close()


def _of_rows(ledger: Ledger, home: Path, result: Check) -> Iterator[tuple[Row, Path, Seal]]:
    folders: dict[str, Path | None] = {}
    for stage, part, content in ledger.rows():
        if content is None:
            result.faults[str(ledger.path)] = f"has a damaged row: {stage} {part or ''}".rstrip()
            continue
        if part is None:
            named = content.get("folder", "")
            folder: Path | None = home / "stages" / named if is_below(named) else None
            sealed = content.get("files", {}) if isinstance(content.get("files"), dict) else {}
            if content.get("seals"):
                folder, sealed = _only(home, f"stages/*-{stage}"), content["seals"]
        else:
            sealed = content.get("files", {})
            if stage not in folders:
                sketch = _only(home, f"stages/*/part-*.sketch-{stage}.parquet")
                folders[stage] = sketch.parent if sketch else _only(home, f"stages/*-{stage}")
            folder = folders[stage]
        if folder is None or not folder.is_dir():
            continue
        for name, seal in sealed.items():
            file = folder / name if part is None else part_path(folder, part, name)
            yield (stage, part), file, seal


def _only(home: Path, pattern: str) -> Path | None:
    return next(iter(home.glob(pattern)), None)
