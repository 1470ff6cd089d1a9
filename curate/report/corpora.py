"""Which files hold the documents of an OUT, or of a refresh's HOME.

A HOME's documents are those of its current snapshot, and what the runs rejected that it came from;
each of these has decisions of its own. Runs of other lines (after a rollback) do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.report.records import read_record


@dataclass(frozen=True)
class Corpus:
    """run: the folder with recipe.yaml and run.json, of a HOME that of the last run; kept, gone:
    files of documents; decisions: files, of a HOME one a run; notes: what is not counted."""

    out: Path
    run: Path
    kept: list[Path]
    gone: list[Path]
    decisions: list[Path]
    runs: list[Path]
    notes: tuple[str, ...] = ()

    @property
    def is_home(self) -> bool:
        """Whether several runs share it."""
        return self.run != self.out

    def record(self) -> dict[str, Any]:
        """run.json; of a HOME the last one, with the rules and languages of all."""
        found = read_record(self.run)
        for run in self.runs[:-1]:
            other = read_record(run)
            for mine, its in zip(found["stages"], other["stages"], strict=False):
                mine["reasons"] = its["reasons"] | mine["reasons"]
            figures = found.get("figures") or {}
            langs = (other.get("figures") or {}).get("languages", {})
            found["figures"] = figures | {"languages": langs | figures.get("languages", {})}
        return found


def corpus_of(out: Path) -> Corpus:
    """The files of a run's folder, which may be none, or of a HOME. UsageError for a single run of
    a HOME, which has no corpus of its own."""
    from curate.refresh.finding import RUNS, current_line
    from curate.refresh.state import FILE

    line = current_line(out)
    if line is None:
        home = out.parent.parent
        if out.parent.name == RUNS and (home / FILE).is_file() and not (out / "corpus").is_dir():
            raise UsageError(f"{out} shares its corpus with other refreshes: name {home}")
        runs, snapshot = [out], out / "corpus"
    else:
        snapshot, runs = line
    gone = [p for run in runs for p in sorted((run / "rejected").glob("part-*.parquet"))]
    return Corpus(
        out,
        runs[-1],
        sorted(snapshot.glob("part-*.parquet")),
        gone,
        [run / "decisions.parquet" for run in runs if (run / "decisions.parquet").exists()],
        runs,
        () if line is None else _notes(snapshot),
    )


def _notes(snapshot: Path) -> tuple[str, ...]:
    from curate.refresh.snapshot import manifest

    found = manifest(snapshot)
    removed, superseded = found.get("removed", 0), found.get("superseded", 0)
    if not removed and not superseded:
        return ()
    return (
        f"not counted: {removed:,} documents that were to be forgotten, {superseded:,} that newer"
        " versions of their pages replaced, and that these may come back",
    )
