"""A workspace: a folder with `llmcurate.yaml`, whose runs lie numbered under `runs/`.

Inside one, commands find their input by themselves: the newest corpus, tokenizer or shards by run
number (never by clock), and write into the next numbered folder.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from curate.run.ledger import ledger_path
from llmcurate.base.disk.files import make_folder
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError

FILE = "llmcurate.yaml"
RECIPE = "recipe.yaml"
KEYS = ("runs", "workers")
_NUMBERED = re.compile(r"^(\d{4,})-(.+)$")
# By what a run folder holds when it is finished: patterns of a file that marks it, and the command
# that makes it.
KINDS = {
    "finished run": (("run.json", ".run/run.json"), "run RECIPE IN..."),
    "corpus": (("corpus.json",), "run RECIPE IN..."),
    "dedup": (("decisions.parquet",), "dedup"),
    "search index": (("search.json", "own/search.json", "index/*/own/search.json"), "search build"),
    # tokenizer.json alone is also a copy beside shards and models
    "tokenizer": (("tokenizer_card.json",), "tokenizer train"),
    "shards": (("manifest.json",), "tokenizer encode"),
    "model": (("train.json",), "pretrain"),
}


@dataclass(frozen=True)
class Workspace:
    """root: the folder that holds llmcurate.yaml."""

    root: Path
    runs: Path
    workers: int = 0

    def numbered(self) -> list[tuple[int, Path]]:
        """Run folders by number, oldest first, but for those that --restart set aside."""
        if not self.runs.is_dir():
            return []
        folders = [(p, _NUMBERED.match(p.name)) for p in self.runs.iterdir() if p.is_dir()]
        runs = sorted((int(m.group(1)), p) for p, m in folders if m)
        aside = {p for _, p in runs if p.suffix[1:].isdigit() and p.with_suffix("").exists()}
        return [(number, p) for number, p in runs if p not in aside]

    def newest(self, kind: str) -> tuple[int, Path] | None:
        """(run number, folder) of the newest of one of KINDS."""
        marks, _ = KINDS[kind]
        for number, path in reversed(self.numbered()):
            if any(any(path.glob(mark)) for mark in marks):
                return number, path
        return None

    def need(self, kind: str) -> Path:
        """The newest of a kind; UsageError says which command makes one."""
        newest = self.newest(kind)
        if newest is None:
            command = f"llmcurate {KINDS[kind][1]}"
            raise UsageError(f"no {kind} in {self.runs} yet: run `{command}` first, or name one")
        return newest[1]

    def out_for(self, name: str, digest: str) -> Path:
        """The folder of the newest run of that name with the same plan, else the next number."""
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
    """The workspace that `start` (default: here) lies in."""
    place = (start or Path.cwd()).resolve()
    for folder in (place, *place.parents):
        path = folder / FILE
        if path.is_file():
            return _read(path)
    return None


def _read(path: Path) -> Workspace:
    try:
        data = read_yaml(path.read_text(encoding="utf-8"), str(path))[0] or {}
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not YAML") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a workspace file is a mapping of {', '.join(KEYS)}")
    for key in data:
        if key not in KEYS:
            raise UsageError(f"{path}: unknown key {key!r}; known: {', '.join(KEYS)}")
    workers = data.get("workers") or 0
    if not isinstance(workers, int) or workers < 0:
        raise UsageError(f"{path}: workers is a number of processes, 0 for one a core")
    return Workspace(path.parent, path.parent / str(data.get("runs") or "runs"), workers)


WORKSPACE_TEXT = """\
# An llmcurate workspace. Commands given in this folder find their input (the newest corpus,
# tokenizer or shards, by run number) and write to the next folder under runs/.
runs: runs
workers: 0   # worker processes; 0 means one a core
"""
RECIPE_TEXT = """\
# A first recipe: llmcurate run recipe.yaml IN
# IN: archives (WARC, WET), parquet, JSON lines, CSV, or folders of these and of texts
name: first
description: Web archives or texts to clean, distinct documents
# input: archives/          # then `llmcurate run` alone does
steps:
  - extract                 # web pages to main text; texts stay as they are
  - c4: {min_sentences: 3}  # Raffel et al. 2020
  - dedup_exact: {key: text, survivor: longest}
"""


def create(folder: Path) -> list[Path]:
    """Writes llmcurate.yaml and a first recipe; never overwrites."""
    make_folder(folder, "FOLDER")
    written = []
    for name, text in ((FILE, WORKSPACE_TEXT), (RECIPE, RECIPE_TEXT)):
        path = folder / name
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written
