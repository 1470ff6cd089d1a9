"""Find the files of an output folder OUT, or of a HOME (the folder of all refreshes of one corpus).

A HOME has snapshots and runs. Its documents are the ones in the current snapshot and the ones
rejected by the runs that led to this snapshot. Runs that a rollback has undone do not count."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.corpus.manifests import manifest_path
from curate.documents.attributes import ATTRIBUTES, read_schema
from curate.documents.documents import CORE
from curate.documents.edits import EDITS
from curate.documents.rejected import rejected_files
from curate.run.ledger import row_digest
from curate.run.records import read_record
from llmcurate.base.disk.files import part_files
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError

FILE = "refresh.db"
ANEW = (
    "put back a copy of it, or begin a new HOME, and repeat the `llmcurate forget` commands there"
)
FOLDER, CURRENT = "corpus", "current"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d(-\d+)?", re.ASCII)
_PART = re.compile(r"part-\d{5,}\.parquet", re.ASCII)
RUNS, IDS = "runs", "ids.parquet"
OF_A_FILE = ("documents", "text_bytes")  # counts per file in a manifest


def checked_name(name: object, source: Path) -> str:
    """Return `name`, the name of a refresh (corpus update). Raises RunFailed if it is not valid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RunFailed(
            f"{source} names a refresh {str(name)[:100]!r}, which is not a valid name: {ANEW}"
        )
    return name


def manifest(folder: Path) -> dict[str, Any]:
    """Return a snapshot's manifest. Raises RunFailed if it is unreadable or not valid."""
    path = manifest_path(folder)
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        files = content["files"]
        for name in files:
            if not _PART.fullmatch(name):
                raise ValueError(f"it names {name[:100]!r}")
        of_snapshot = content.keys() & {"removals", "removed", "superseded"}
        for entry, numbers in ((content, of_snapshot), *((e, ()) for e in files.values())):
            if not all(type(entry[number]) is int for number in (*OF_A_FILE, *numbers)):
                raise ValueError("a count is not a number")
        for entry in files.values():
            int(entry["ids"], 16)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunFailed(
            f"{folder} has no manifest that can be read ({error}): put back a copy of {path.name},"
            f" or see `llmcurate check {shlex.quote(str(folder.parent.parent))} --repair`"
        ) from None
    return content


def runs_that_read(home: Path, name: str) -> list[Path]:
    """Return the runs that read a document with the id `name`, newest first. If no run read such a
    document, return all runs. If `home` is not a folder of refreshes (HOME), return no runs."""
    import pyarrow.parquet as pq

    if not (home / FILE).is_file():
        return []
    runs = sorted((p for p in (home / RUNS).glob("[!.]*") if (p / IDS).exists()), reverse=True)
    matches = [r for r in runs if pq.read_table(r / IDS, filters=[("id", "=", name)]).num_rows]
    return matches or runs


def sealed_rows(home: Path, *tables: str) -> Iterator[tuple[str, tuple[Any, ...] | None]]:
    """Yield (table, row) for each row of the given tables in the database refresh.db of `home`, the
    folder of a refresh (HOME). Takes no lock. A row that differs from its stored digest is None.
    Raises sqlite3.DatabaseError if the file is unreadable."""
    path = home / FILE
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        db.text_factory = lambda text: text.decode("utf-8", "replace")
        for table in tables:
            for *row, digest in db.execute(f"SELECT * FROM {table}"):
                yield table, tuple(row) if digest == row_digest((table, *row)) else None


def current_line(home: Path) -> tuple[Path, list[Path]] | None:
    """Return the folder of the corpus's current version (snapshot) and the runs that led to it,
    oldest first. Return None if `home` is not a folder of refreshes. Takes no lock, because a
    running refresh changes neither that folder nor those runs. Raises UsageError if there is no
    snapshot yet."""
    if not (home / FILE).is_file():
        return None
    link = home / CURRENT
    if not link.is_symlink() or not link.is_dir():
        raise UsageError(f"{home} has no snapshot yet: refresh it first")
    try:
        rows = [row for _, row in sealed_rows(home, "refreshes")]
    except sqlite3.Error as error:
        raise UsageError(f"{home / FILE} cannot be read ({error})") from None
    if None in rows:
        raise RunFailed(f"{home / FILE} is damaged: {ANEW}")
    refreshes = {checked_name(row[0], home / FILE): row[2:4] for row in rows if row}
    runs: list[Path] = []
    name: str | None = checked_name(link.readlink().name, link)
    while name is not None and name in refreshes:
        kind, base = refreshes.pop(name)  # pop, so that a circle of names ends
        if kind != "forget":
            runs.insert(0, home / RUNS / name)
        name = base
    if not runs:
        raise UsageError(f"{home} has no record of the run of its snapshot {link.readlink().name}")
    return home / FOLDER / link.readlink().name, runs


def kept_folder(out: Path) -> Path:
    """Return the folder of kept documents: OUT/corpus, or for refreshes the current snapshot."""
    current = out.parent.parent / CURRENT
    if not (out / "corpus").is_dir() and out.parent.name == RUNS and current.is_dir():
        return current
    return out / "corpus"


@dataclass(frozen=True)
class Corpus:
    """The files of an output folder (OUT) or a folder of refreshes (HOME)."""

    out: Path
    run: Path  # folder with recipe.yaml and run.json; in a HOME, that of the last run
    kept: list[Path]  # files of kept documents
    gone: list[Path]  # files of rejected documents
    decisions: list[Path]  # one file per run
    runs: list[Path]
    notes: tuple[str, ...] = ()  # say which documents are not counted

    @property
    def is_home(self) -> bool:
        return self.run != self.out

    def need_whole(self) -> None:
        """Raise UsageError if corpus/ was written without some of the standard columns."""
        names = read_schema(self.kept[0]).names if self.kept and self.gone else None
        lacks = [n for n in (*(n for n, _ in CORE), EDITS) if names and n not in names]
        if lacks:
            named = ", ".join(lacks).replace(EDITS, ATTRIBUTES)
            raise UsageError(
                f"{self.out / FOLDER} was written without {named} (--plain or --columns), so it"
                " cannot answer this: run the recipe with all columns"
            )

    def record(self) -> dict[str, Any]:
        """Return the content of run.json. For a folder of refreshes (HOME), return the last run's,
        with entries for the rules and languages that only earlier runs have."""
        total = read_record(self.run)
        for run in self.runs[:-1]:
            other = read_record(run)
            for stage, of_run in zip(total["stages"], other["stages"], strict=False):
                stage["reasons"] = of_run["reasons"] | stage["reasons"]
            figures = total.get("figures") or {}
            langs = (other.get("figures") or {}).get("languages", {})
            total["figures"] = figures | {"languages": langs | figures.get("languages", {})}
        return total


def corpus_of(out: Path) -> Corpus:
    """Return the files of a corpus. `out` is the output folder of a run, or a folder of refreshes
    (HOME). Raises UsageError for the folder of one run in a HOME: the runs share one corpus, so the
    HOME must be named instead."""
    line = current_line(out)
    if line is None:
        home = out.parent.parent
        if out.parent.name == RUNS and (home / FILE).is_file() and not (out / "corpus").is_dir():
            raise UsageError(f"{out} shares its corpus with other refreshes: name {home}")
        runs, snapshot = [out], out / "corpus"
    else:
        snapshot, runs = line
    gone = [p for run in runs for p in rejected_files(run)]
    return Corpus(
        out,
        runs[-1],
        part_files(snapshot),
        gone,
        [run / "decisions.parquet" for run in runs if (run / "decisions.parquet").exists()],
        runs,
        () if line is None else _notes(snapshot),
    )


def removed_file(folder: Path) -> Path | None:
    """Return the path of a snapshot's list of removed documents; None if nothing was removed."""
    path = folder.with_name(f"{folder.name}.removed.parquet")
    return path if path.is_file() else None


def _notes(snapshot: Path) -> tuple[str, ...]:
    content = manifest(snapshot)
    removed, superseded = content.get("removed", 0), content.get("superseded", 0)
    if not removed and not superseded:
        return ()
    return (
        f"not counted: {counted(removed, 'document')} to be forgotten and {superseded:,} replaced"
        " by newer versions of their pages, which may come back",
    )
