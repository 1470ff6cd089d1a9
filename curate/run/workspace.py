"""A workspace: a folder with `llmcurate.yaml` and numbered runs under `runs/`. A command in a
workspace finds its input itself: the corpus, tokenizer or shards of the run with the highest
number, whatever its date. The command writes to the next numbered folder."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from curate.run.ledger import ledger_path
from llmcurate.base.disk.files import make_folder, read_text
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError

FILE = "llmcurate.yaml"
RECIPE = "recipe.yaml"
KEYS = ("runs", "workers")
_NUMBERED = re.compile(r"^(\d{4,})-(.+)$")
# By kind of result: patterns of the file that a run folder with such a result has, and the command
# that makes the result.
KINDS = {
    "finished run": (("run.json", ".run/run.json"), "run RECIPE IN..."),
    "corpus": (("corpus.json",), "run RECIPE IN..."),
    "dedup": (("decisions.parquet",), "dedup"),
    "search index": (("search.json", "own/search.json", "index/*/own/search.json"), "search build"),
    # not tokenizer.json, which is also copied beside shards and models
    "tokenizer": (("tokenizer_card.json",), "tokenizer train"),
    "shards": (("manifest.json",), "tokenizer encode"),
    "model": (("train.json",), "pretrain"),
}


@dataclass(frozen=True)
class Workspace:
    root: Path
    runs: Path
    workers: int = 0

    def numbered(self) -> list[tuple[int, Path]]:
        """Return (number, folder) of the runs in order, without runs that --restart has renamed."""
        if not self.runs.is_dir():
            return []
        folders = [(p, _NUMBERED.match(p.name)) for p in self.runs.iterdir() if p.is_dir()]
        runs = sorted((int(m.group(1)), p) for p, m in folders if m)
        aside = {p for _, p in runs if p.suffix[1:].isdigit() and p.with_suffix("").exists()}
        return [(number, p) for number, p in runs if p not in aside]

    def newest(self, kind: str) -> tuple[int, Path] | None:
        """Return (number, folder) of the newest run with a result of this kind, or None."""
        marks, _ = KINDS[kind]
        for number, path in reversed(self.numbered()):
            if any(any(path.glob(mark)) for mark in marks):
                return number, path
        return None

    def need(self, kind: str) -> Path:
        """Return the folder of the newest result of this kind. Without one, raise UsageError with
        the command that makes it."""
        newest = self.newest(kind)
        if newest is None:
            command = f"llmcurate {KINDS[kind][1]}"
            raise UsageError(f"no {kind} in {self.runs} yet: run `{command}` first, or name one")
        return newest[1]

    def out_for(self, name: str, digest: str) -> Path:
        """Return the folder of the newest run with this name and plan, else the next new folder."""
        numbered = self.numbered()
        for _, path in reversed(numbered):
            if path.name.partition("-")[2] == name and _plan_of(path) == digest:
                return path
        following = numbered[-1][0] + 1 if numbered else 1
        return self.runs / f"{following:04d}-{name}"


def _plan_of(run: Path) -> str | None:
    path = ledger_path(run)
    if not path.exists():
        return None
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        row = db.execute("SELECT plan FROM runs ORDER BY number DESC LIMIT 1").fetchone()
        return row[0] if row else None
    except sqlite3.DatabaseError:
        return None
    finally:
        db.close()


def find(start: Path | None = None) -> Workspace | None:
    """Return the workspace that contains the folder `start` (None: the current folder), or None."""
    place = (start or Path.cwd()).resolve()
    for folder in (place, *place.parents):
        path = folder / FILE
        if path.is_file():
            return _read(path)
    return None


def _read(path: Path) -> Workspace:
    data = read_yaml(read_text(path), str(path))[0] or {}
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a workspace file is a mapping of {', '.join(KEYS)}")
    for key in data:
        if key not in KEYS:
            raise UsageError(f"{path}: unknown key {key!r}; known: {', '.join(KEYS)}")
    workers = data.get("workers") or 0
    if not isinstance(workers, int) or workers < 0:
        raise UsageError(f"{path}: workers is a number of processes, 0 for one per core")
    return Workspace(path.parent, path.parent / str(data.get("runs") or "runs"), workers)


WORKSPACE_TEXT = """\
# An llmcurate workspace. Commands given in this folder find their input (the newest corpus,
# tokenizer or shards, by run number) and write to the next folder under runs/.
runs: runs
workers: 0   # worker processes; 0 means one per core
"""
RECIPE_TEXT = """\
# A first recipe: llmcurate run recipe.yaml IN
# IN: archives (WARC, WET), parquet, JSONL, CSV or text files, or folders of these
name: first
description: Web archives or texts to clean, distinct documents
# input: archives/          # then `llmcurate run` needs no IN
steps:
  - extract                 # web pages to main text; texts stay as they are
  - c4: {min_sentences: 3}  # Raffel et al. 2020
  - dedup_exact: {key: text, survivor: longest}
"""


def create(folder: Path) -> list[Path]:
    """Write llmcurate.yaml and a first recipe unless they exist. Return the files written."""
    make_folder(folder, "FOLDER")
    written = []
    for name, text in ((FILE, WORKSPACE_TEXT), (RECIPE, RECIPE_TEXT)):
        path = folder / name
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written
