"""Where in a HOME a document is: which refresh read it, for `llmcurate explain`."""

from __future__ import annotations

from pathlib import Path

from curate.refresh.snapshot import CURRENT
from curate.refresh.state import FILE

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


def corpus_of(out: Path) -> Path:
    """What a run kept: OUT/corpus, or for one of a HOME the current snapshot."""
    current = out.parent.parent / CURRENT
    if not (out / "corpus").is_dir() and out.parent.name == RUNS and current.is_dir():
        return current
    return out / "corpus"
