"""HOME/refresh.db: the records of refreshes, their inputs, and the corpora that they add to.

A refresh is recorded before it does any work, with all that decides its output: name, inputs,
partitions, corpus (base snapshot). So a refresh that was killed resumes with the same output."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from curate.run.homes import ANEW, FILE, checked_name
from curate.run.ledger import LOCK, Ledger, row_digest
from llmcurate.base.errors import LlmcurateError, RunFailed
from llmcurate.base.messages import Message, json_values

BEGUN, DONE = "begun", "done"
# `kind` is run (new inputs), rebuild (all inputs again) or forget (only removals). `base` is the
# refresh's base snapshot, null for the first refresh and a rebuild. Each row has its own digest.
_TABLES = f"""{LOCK}
CREATE TABLE IF NOT EXISTS refreshes (
  name TEXT PRIMARY KEY, number INTEGER, kind TEXT, base TEXT, state TEXT, plan TEXT,
  digest TEXT);
CREATE TABLE IF NOT EXISTS inputs (
  refresh TEXT, position INTEGER, path TEXT, state TEXT, stamp TEXT, bytes INTEGER, digest TEXT,
  PRIMARY KEY (refresh, position));
CREATE TABLE IF NOT EXISTS removals (
  number INTEGER PRIMARY KEY, kind TEXT, value TEXT, since TEXT, digest TEXT);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT, digest TEXT);
"""


@dataclass(frozen=True)
class Described:
    """The settings of a recipe that decide which documents are kept."""

    steps: list[Any]  # settings, version and digests of each step
    read: Any  # settings for reading the input
    cuts: list[int]  # positions of steps before which a new stage begins


@dataclass(frozen=True)
class Plan(Message):
    """The plan of a refresh: everything that decides its output. A refresh that only forgets
    documents has only the field `parent`."""

    JSON = ("parent", "inputs?", "recipe?", "known?inputs")
    parent: str | None  # snapshot that was current when the refresh began
    inputs: Any = None
    recipe: Described | None = None
    known: int = 0  # number of known inputs


@dataclass(frozen=True)
class Refresh:
    """The record of a refresh."""

    name: str
    kind: str  # run, rebuild or forget
    base: str | None  # name of the base snapshot
    state: str  # begun or done
    text: str  # the plan as JSON

    @cached_property
    def plan(self) -> Plan:
        return Plan.from_json(self.text)


class State(Ledger):
    """The records in a folder of refreshes (HOME), locked while open. Methods raise RunFailed if a
    record is damaged."""

    file = FILE
    tables = _TABLES

    @property
    def home(self) -> Path:
        return self.path.parent

    def _damaged(self, what: str) -> RunFailed:
        return RunFailed(f"{self.path} is damaged ({what}): {ANEW}")

    def _failure(self, error: sqlite3.DatabaseError) -> LlmcurateError:
        if isinstance(error, sqlite3.OperationalError):
            return super()._failure(error)
        return self._damaged(str(error).splitlines()[-1])

    def _put(self, table: str, row: tuple[Any, ...]) -> None:
        marks = ", ".join("?" * (len(row) + 1))
        values = (*row, row_digest((table, *row)))
        self._write(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)

    def _get(self, table: str, rest: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        for *row, digest in self._rows(f"SELECT * FROM {table} {rest}", values):
            if digest != row_digest((table, *row)):
                raise self._damaged(f"a row of its {table}")
            yield tuple(row)

    def fact(self, name: str) -> Any:
        row = next(self._get("facts", "WHERE name = ?", name), None)
        return json.loads(row[1]) if row else None

    def set_fact(self, name: str, value: Any) -> None:
        self._put("facts", (name, json.dumps(value)))

    @property
    def current(self) -> str | None:
        """The name of the current snapshot, on which the next refresh is based."""
        name: str | None = self.fact("current")
        return None if name is None else checked_name(name, self.path)

    def refreshes(self) -> list[Refresh]:
        refreshes = []
        for name, _, kind, base, state, plan in self._get("refreshes", "ORDER BY number"):
            for named in (name, *([] if base is None else [base])):
                checked_name(named, self.path)
            refreshes.append(Refresh(name, kind, base, state, plan))
        return refreshes

    def lineage(self, name: str | None) -> list[Refresh]:
        """Return the refreshes that led to a snapshot, the first one first."""
        by_name = {r.name: r for r in self.refreshes()}
        line: list[Refresh] = []
        while name is not None:
            if name not in by_name:  # or visited before: the lineage is a cycle
                raise self._damaged(f"no refresh {name}")
            line.append(by_name.pop(name))
            name = line[-1].base
        return line[::-1]

    def pending(self) -> Refresh | None:
        return next((r for r in self.refreshes() if r.state == BEGUN), None)

    def begin(
        self, name: str, kind: str, base: str | None, plan: Plan, files: Iterable[Any]
    ) -> Refresh:
        """Record in one transaction that a refresh began, with its inputs (`InputFile`)."""
        refresh = Refresh(name, kind, base, BEGUN, json.dumps(json_values(plan)))
        with self._transaction():
            ((last,),) = self._rows("SELECT max(number) FROM refreshes")
            self._put("refreshes", (name, (last or 0) + 1, kind, base, BEGUN, refresh.text))
            for position, f in enumerate(files):
                self._put("inputs", (name, position, f.url or f.path, f.state, f.stamp, f.size))
        return refresh

    def end(self, name: str) -> None:
        """Record that a refresh is done and its snapshot is the current one."""
        with self._transaction():
            (row,) = self._get("refreshes", "WHERE name = ?", name)
            self._put("refreshes", (*row[:4], DONE, row[5]))
            self.set_fact("current", name)

    def drop(self, name: str) -> None:
        for table, column in (("inputs", "refresh"), ("refreshes", "name")):
            self._write(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    def seen(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return {path or URL: (file's version, digest of content)} for the inputs of the named
        refreshes. For an input of several refreshes, the values of the last one are returned."""
        rows = (r for n in names for r in self._get("inputs", "WHERE refresh = ? ORDER BY 2", n))
        return {path: (state, stamp) for _, _, path, state, stamp, _ in rows}

    def removals(self) -> list[tuple[str, str]]:
        """Return (kind, value) of everything to forget, in the order of the requests."""
        return [(kind, value) for _, kind, value, _ in self._get("removals", "ORDER BY number")]

    def remove(self, entries: Iterable[tuple[str, str]], since: str) -> None:
        known = self.removals()
        new = [entry for entry in dict.fromkeys(entries) if entry not in known]
        with self._transaction():
            for number, entry in enumerate(new, len(known) + 1):
                self._put("removals", (number, *entry, since))
