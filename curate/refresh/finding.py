"""Where in a HOME a document is: which refresh read it, for `llmcurate explain`."""

from __future__ import annotations

from pathlib import Path

from curate.errors import UsageError
from curate.refresh.snapshot import CURRENT, FOLDER
from curate.refresh.state import FILE, checked_name

RUNS, IDS = "runs", "ids.parquet"


def runs_that_read(home: Path, name: str) -> list[Path]:
    """The runs of a HOME that gave the id, else all of them, the newest first; none where the
    folder is no HOME."""
    import pyarrow.parquet as pq

    if not (home / FILE).is_file():
        return []
    runs = sorted((p for p in (home / RUNS).glob("[!.]*") if (p / IDS).exists()), reverse=True)
    mine = [r for r in runs if pq.read_table(r / IDS, filters=[("id", "=", name)]).num_rows]
    return mine or runs


def current_line(home: Path) -> tuple[Path, list[Path]] | None:
    """(the current snapshot, the runs that it came from, the first one first); None where the
    folder is no HOME. Takes no lock: what a refresh does meanwhile changes neither. UsageError
    where there is no snapshot yet."""
    import sqlite3

    if not (home / FILE).is_file():
        return None
    link = home / CURRENT
    if not link.is_symlink() or not link.is_dir():
        raise UsageError(f"{home} has no snapshot yet: refresh it first")
    db = sqlite3.connect(f"file:{home / FILE}?mode=ro", uri=True)
    try:
        rows = db.execute("SELECT name, kind, base FROM refreshes").fetchall()
    except sqlite3.Error as error:
        raise UsageError(f"{home / FILE} cannot be read ({error})") from None
    finally:
        db.close()
    known = {checked_name(name, home / FILE): (kind, base) for name, kind, base in rows}
    runs: list[Path] = []
    name: str | None = checked_name(link.readlink().name, link)
    while name is not None and name in known:
        kind, base = known[name]
        if kind != "forget":
            runs.insert(0, home / RUNS / name)
        name = base
    if not runs:
        raise UsageError(f"{home} knows no run of its snapshot: {link.readlink().name}")
    return home / FOLDER / link.readlink().name, runs


def corpus_of(out: Path) -> Path:
    """What a run kept: OUT/corpus, or for one of a HOME the current snapshot."""
    current = out.parent.parent / CURRENT
    if not (out / "corpus").is_dir() and out.parent.name == RUNS and current.is_dir():
        return current
    return out / "corpus"
