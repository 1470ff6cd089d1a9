"""HOME/refresh.db: which inputs were taken in, by which refresh, from which snapshot it went on.

A refresh is recorded as begun, with all that decides its bytes (name, inputs, partitions, the
snapshot it goes on from), before any work; so one that was killed goes on as the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from curate.errors import RunFailed, UsageError
from curate.run.homes import FILE, checked_name
from curate.run.ledger import LOCK, Ledger

BEGUN, DONE = "begun", "done"
# kind: run (new inputs), rebuild (all inputs again), forget (only removals). base: the snapshot
# that it goes on from; none for the first and for a rebuild.
_TABLES = f"""{LOCK}
CREATE TABLE IF NOT EXISTS refreshes (
  number INTEGER PRIMARY KEY, name TEXT UNIQUE, kind TEXT, base TEXT, state TEXT, plan TEXT,
  note TEXT);
CREATE TABLE IF NOT EXISTS inputs (
  refresh TEXT, position INTEGER, path TEXT, state TEXT, stamp TEXT, bytes INTEGER,
  PRIMARY KEY (refresh, position));
CREATE TABLE IF NOT EXISTS removals (
  number INTEGER PRIMARY KEY, kind TEXT, value TEXT, since TEXT, UNIQUE (kind, value));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT);
"""


@dataclass(frozen=True)
class Refresh:
    """One refresh as it is recorded. text: JSON of `plan`, which may name many inputs and is read
    when it is asked for."""

    name: str
    kind: str
    base: str | None
    state: str
    text: str

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What decides its bytes. RunFailed where it is damaged."""
        try:
            plan = json.loads(self.text)
        except (TypeError, ValueError):
            plan = None
        if not isinstance(plan, dict):
            raise RunFailed(
                f"{FILE}: the plan of {self.name} is damaged; give it up with --abandon"
            )
        return plan


class State(Ledger):
    """The records of a HOME; who has it open holds its lock."""

    file = FILE
    tables = _TABLES

    @property
    def home(self) -> Path:
        """The folder."""
        return self.path.parent

    def fact(self, name: str) -> Any:
        """A recorded value, None where there is none."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        try:
            return json.loads(row[0]) if row else None
        except (TypeError, ValueError):
            raise self._damaged(f"the value of {name}") from None

    def _text(self, path: object) -> str:
        if not isinstance(path, str):
            raise self._damaged("an input without a name")
        return path

    def _damaged(self, what: str) -> RunFailed:
        return RunFailed(
            f"{self.path} is damaged ({what}): put back a copy of it, or begin a new HOME"
        )

    def set_fact(self, name: str, value: Any) -> None:
        """Records a value."""
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    @property
    def current(self) -> str | None:
        """The snapshot that the next refresh goes on from."""
        name: str | None = self.fact("current")
        return None if name is None else checked_name(name, self.path)

    def refreshes(self) -> list[Refresh]:
        """All of them, in the order in which they began."""
        rows = self._db.execute(
            "SELECT name, kind, base, state, plan FROM refreshes ORDER BY number"
        )
        refreshes = [Refresh(*row) for row in rows]
        for refresh in refreshes:
            for name in (refresh.name, *([] if refresh.base is None else [refresh.base])):
                checked_name(name, self.path)
        return refreshes

    def lineage(self, name: str | None) -> list[Refresh]:
        """The refreshes that made a snapshot, the first one first."""
        by_name = {r.name: r for r in self.refreshes()}
        line: list[Refresh] = []
        while name is not None:
            if name not in by_name:  # or met before: the line is a circle
                raise self._damaged(f"there is no refresh {name}")
            line.append(by_name.pop(name))
            name = line[-1].base
        return line[::-1]

    def pending(self) -> Refresh | None:
        """The refresh that began and did not end."""
        return next((r for r in self.refreshes() if r.state == BEGUN), None)

    def begin(
        self, name: str, kind: str, base: str | None, plan: dict[str, Any], files: Iterable[Any]
    ) -> None:
        """Records a refresh with its inputs (InputFile of formats), all or nothing."""
        self._write("BEGIN IMMEDIATE")
        try:
            self._write(
                "INSERT INTO refreshes (name, kind, base, state, plan) VALUES (?, ?, ?, ?, ?)",
                (name, kind, base, BEGUN, json.dumps(plan)),
            )
            for position, f in enumerate(files):
                row = (name, position, f.url or f.path, f.state, f.stamp, f.size)
                self._write("INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?)", row)
            self._write("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def end(self, name: str, note: dict[str, Any]) -> None:
        """Records that a refresh is done, and its snapshot the current one."""
        self._write("BEGIN IMMEDIATE")
        try:
            self._write(
                "UPDATE refreshes SET state = ?, note = ? WHERE name = ?",
                (DONE, json.dumps(note), name),
            )
            self.set_fact("current", name)
            self._write("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def drop(self, name: str) -> None:
        """Forgets that a refresh began."""
        for table, column in (("inputs", "refresh"), ("refreshes", "name")):
            self._write(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    def seen(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """path or URL -> (state, stamp) of the inputs of these refreshes, the latest of each."""
        states: dict[str, tuple[str, str]] = {}
        for name in names:
            rows = self._db.execute(
                "SELECT path, state, stamp FROM inputs WHERE refresh = ? ORDER BY position", (name,)
            )
            states |= {self._text(path): (state, stamp) for path, state, stamp in rows}
        return states

    def paths(self, names: Iterable[str]) -> list[str]:
        """The inputs of these refreshes in the order in which they were taken in."""
        paths: list[str] = []
        for name in names:
            rows = self._db.execute(
                "SELECT path FROM inputs WHERE refresh = ? ORDER BY position", (name,)
            )
            paths += [self._text(path) for (path,) in rows]
        return paths

    def removals(self) -> list[tuple[str, str]]:
        """(kind, value) of all that is to be forgotten, in the order in which it was said."""
        return list(self._db.execute("SELECT kind, value FROM removals ORDER BY number"))

    def remove(self, entries: Iterable[tuple[str, str]], since: str) -> int:
        """Adds to what is to be forgotten; returns how many entries are new."""
        before = len(self.removals())
        for kind, value in entries:
            self._write(
                "INSERT OR IGNORE INTO removals (kind, value, since) VALUES (?, ?, ?)",
                (kind, value, since),
            )
        return len(self.removals()) - before


def open_home(home: Path) -> State:
    """The records of a HOME that is there; UsageError where it is none."""
    if not (home / FILE).is_file():
        raise UsageError(f"{home} is no folder of `llmcurate refresh`: it has no {FILE}")
    return State(home)
