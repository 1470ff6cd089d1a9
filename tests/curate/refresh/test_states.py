"""Every operation of a HOME after every other, complete or killed: the HOME stays whole, agrees
with a plain model, and can be continued."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from curate.inspect.check import check
from curate.refresh import run, snapshot
from curate.refresh.outcome import RefreshOptions
from curate.refresh.state import State
from curate.run.records import Options
from llmcurate.base.errors import UsageError
from tests.curate.refresh.growing import START, Home

# Copies: b0 of a1, c0 of a0. What is to be forgotten stands in a.
FILES = {
    "a": {"a0": "One.", "a1": "Two.", "a2": "Three."},
    "b": {"b0": "Two.", "b1": "Four."},
    "c": {"c0": "One.", "c1": "Five."},
    "d": {"d0": "Six."},
}
FORGOTTEN = "a1"


class Died(Exception):
    pass


class Refused(Exception):
    pass


@dataclass
class Made:
    """A snapshot. base: what it goes on from; parent: what was current before it; lacks: what was
    on the list of what is to be forgotten."""

    kind: str
    files: tuple[str, ...]
    base: str | None
    parent: str | None
    lacks: frozenset[str] = frozenset()

    @property
    def ids(self) -> set[str]:
        """The first document of each text, but for what it lacks."""
        first: dict[str, str] = {}
        for file in self.files:
            for name, text in FILES[file].items():
                first.setdefault(text, name)
        return set(first.values()) - self.lacks


@dataclass
class Model:
    """A HOME by its documentation. made: all snapshots ever, in order; stops: where the operation
    at work is killed: before it is recorded (`begun`), before its end (`ended`; `unlinked`, where
    it makes no snapshot, is its end), before more than one snapshot is removed (`pruned`), or
    behind all that counts (`done`)."""

    made: dict[str, Made] = field(default_factory=dict)
    standing: list[str] = field(default_factory=list)
    current: str | None = None
    listed: frozenset[str] = frozenset()
    pending: str | None = None
    stops: str = ""

    def _begin(self, now: str, kind: str, files: tuple[str, ...], base: str | None) -> None:
        if self.stops != "begun":
            self.made[now] = Made(kind, files, base, self.current)
            self.pending = now
            self._end()

    def _end(self) -> None:
        if self.pending and self.stops not in ("ended", "unlinked"):
            self.made[self.pending].lacks = self.listed
            self.standing.append(self.pending)
            self.current, self.pending = self.pending, None

    def _without_listed(self, now: str, base: str) -> None:
        if self.made[base].lacks != self.listed:
            self._begin(now, "forget", self.made[base].files, base)

    def refresh(self, now: str, *files: str) -> None:
        if self.pending:
            return self._end()
        held = self.made[self.current].files if self.current else ()
        new = tuple(f for f in files if f not in held)
        if new or self.current is None:
            return self._begin(now, "run", (*held, *new), self.current)
        return self._without_listed(now, self.current)

    def rebuild(self, now: str, *files: str) -> None:
        if self.pending and self.made[self.pending].kind != "rebuild":
            raise Refused
        if self.pending or self.current is None:
            return self._end()
        held = self.made[self.current].files
        return self._begin(now, "rebuild", tuple(dict.fromkeys((*held, *files))), None)

    def forget(self, now: str) -> None:
        self.listed |= {FORGOTTEN}
        if not self.pending and self.current:
            self._without_listed(now, self.current)

    def roll_back(self, now: str) -> None:
        ingest = self.current
        while ingest and self.made[ingest].kind == "forget":
            ingest = self.made[ingest].base
        parent = self.made[ingest].parent if ingest else None
        if self.pending or parent not in self.standing:
            raise Refused
        if self.made[parent].lacks != self.listed:
            return self._begin(now, "forget", self.made[parent].files, parent)
        self.current = parent

    def prune(self, now: str) -> None:
        if self.stops not in ("", "pruned"):
            return
        stay = {self.standing[-1], self.current}
        if self.pending:
            stay.add(self.made[self.pending].base)
        gone = [name for name in self.standing if name not in stay]
        gone = gone[:1] if self.stops else gone
        self.standing = [name for name in self.standing if name not in gone]


class Both:
    """A HOME, and the model of it. Runs over the same inputs are copied from the first one."""

    def __init__(self, bench: Any, patch: pytest.MonkeyPatch) -> None:
        self.home = Home(bench, [{"dedup_exact": {}}])
        for name, texts in FILES.items():
            bench.jsonl(f"{name}.jsonl", [{"id": i, "text": t} for i, t in texts.items()])
        self.model, self.minutes, self.kept = Model(), 0, bench.folder / "kept"
        really = run.run_planned

        def copied(plan: Any, out: Path, options: Options) -> None:
            kept = self.kept / f"run-{out.name}-{plan.digest}"
            if kept.is_dir() and not out.exists():
                shutil.copytree(kept, out)
            else:
                really(plan, out, options)
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(out, kept)

        patch.setattr(run, "run_planned", copied)

    def keep(self, name: str) -> None:
        """Keeps what there is under a name."""
        shutil.copytree(self.home.path, self.kept / name, symlinks=True)
        self.states[name] = deepcopy(self.model), self.minutes

    states: dict[str, tuple[Model, int]] = {}

    def restore(self, name: str) -> None:
        """Puts back what was kept."""
        shutil.rmtree(self.home.path, ignore_errors=True)
        shutil.copytree(self.kept / name, self.home.path, symlinks=True)
        model, self.minutes = self.states[name]
        self.model = deepcopy(model)

    def do(self, name: str, *files: str) -> None:
        """An operation, on both; afterwards both are the same."""
        operation, _, moment = name.partition(" ")
        self.minutes += 1
        now = START + timedelta(minutes=self.minutes)
        called = now.strftime("%Y-%m-%dT%H-%M")
        stops, refused = "", False
        with pytest.MonkeyPatch.context() as patch:
            if moment:
                dies_at(patch, moment, self.model.current)
            try:
                self._really(operation, files or ("c",), now)
            except Died:
                stops = KILLS[moment][0]
            except UsageError:
                refused = True
        self.model.stops = stops
        try:
            self._in_model(operation, files or ("c",), called)
            assert not refused
        except Refused:
            assert refused
        self.compare()
        if operation in ("refresh", "rebuild", "prune") and not (stops or refused):
            assert self.home.folder().name == self.model.current

    def _really(self, operation: str, files: tuple[str, ...], now: Any) -> None:
        how = RefreshOptions(quiet=True, now=now)
        paths = [self.home.bench.folder / f"{file}.jsonl" for file in files]
        if operation in ("refresh", "rebuild"):
            self.home.refresh(*paths, now=now, rebuild=operation == "rebuild")
        elif operation == "prune":
            self.home.refresh(self.home.bench.folder / "a.jsonl", now=now, keep=1)
        elif operation in ("forget", "purge"):
            how.keep = 1 if operation == "purge" else None
            run.forget(self.home.path, [("id", FORGOTTEN)], how)
        elif operation == "roll-back":
            run.roll_back(self.home.path, "parent", how)

    def _in_model(self, operation: str, files: tuple[str, ...], now: str) -> None:
        if operation in ("refresh", "rebuild"):
            getattr(self.model, operation)(now, *files)
        elif operation == "prune":
            self.model.refresh(now, "a")
        elif operation in ("forget", "purge"):
            self.model.forget(now)
        elif operation == "roll-back":
            self.model.roll_back(now)
        if operation in ("prune", "purge"):
            self.model.prune(now)

    def compare(self) -> None:
        home, model = self.home, self.model
        assert check(home.path, Options(1, quiet=True)).faults == {}
        with closing(State(home.path)) as state:
            pending = state.pending()
            assert (state.current, pending and pending.name) == (model.current, model.pending)
        standing = [n for n in snapshot.names(home.path) if n != model.pending]
        assert standing == sorted(model.standing)
        for name in model.standing:
            assert set(home.ids(name)) == model.made[name].ids, name
            assert home.manifest(name)["documents"] == len(model.made[name].ids)
        assert home.folder().is_dir()


# By the operation that they end: what of it is done, and where: (object, name, whether the work is
# done before it dies).
KILLS: dict[str, tuple[str, Any, str, bool]] = {
    "unrecorded": ("begun", State, "begin", False),
    "recorded": ("ended", State, "begin", True),
    "run": ("ended", run, "run_planned", True),
    "removed": ("ended", snapshot, "remove_beside", True),
    "unwritten": ("ended", snapshot, "write_manifest", False),
    "written": ("ended", snapshot, "write_manifest", True),
    "built": ("ended", snapshot, "build", True),
    "scrubbed": ("ended", run, "_scrub", True),
    "linked": ("ended", snapshot, "point_current_to", True),
    "ended": ("done", State, "end", True),
    "unlinked": ("unlinked", snapshot, "point_current_to", False),
    "hidden": ("pruned", snapshot, "hidden", True),
}
WHOLE = ["refresh", "rebuild", "forget", "roll-back", "prune", "purge", "check"]
KILLED_LAST = ["refresh linked", "rebuild built", "forget scrubbed", "roll-back unlinked"]
KILLED_LAST += ["prune hidden"]
KILLED = [
    *(f"refresh {m}" for m in KILLS if m not in ("unlinked", "hidden")),
    *("rebuild recorded", "rebuild unwritten", "rebuild built", "rebuild ended"),
    *(f"forget {m}" for m in KILLS if m not in ("run", "unlinked", "hidden")),
    *KILLED_LAST[-2:],
]


def dies_at(patch: pytest.MonkeyPatch, moment: str, current: str | None) -> None:
    """current: the snapshot at the beginning, whose link an operation before may have to make."""
    _, owner, name, done = KILLS[moment]
    work = getattr(owner, name)

    def dies(*args: Any, **more: Any) -> Any:
        if name == "hidden" and not (args[0].is_dir() and args[0].parent.name == "corpus"):
            return work(*args, **more)
        if name == "point_current_to" and args[1] == current:
            return work(*args, **more)
        if done:
            work(*args, **more)
        raise Died

    patch.setattr(owner, name, dies)


@pytest.fixture(scope="module")
def both(shared_bench: Any) -> Iterator[Both]:
    """After two refreshes."""
    with pytest.MonkeyPatch.context() as patch:
        made = Both(shared_bench, patch)
        made.do("refresh", "a")
        made.do("refresh", "b")
        made.keep("begin")
        yield made


QUICK = {
    ("roll-back", "prune"),
    ("roll-back unlinked", "prune"),
    ("refresh unwritten", "check"),
    ("refresh built", "forget"),
    ("forget", "roll-back"),
    ("prune hidden", "check"),
}
PAIRS = [
    pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow)
    for pair in product([*WHOLE, *KILLED], [*WHOLE, *KILLED_LAST])
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_any_two_operations_in_a_row_leave_a_whole_home_that_continues(both, first, second):
    if first not in both.states:
        both.restore("begin")
        both.do(first)
        both.keep(first)
    both.restore(first)
    both.do(second)
    both.do("refresh", "d")  # where one is unfinished it goes on with that one first
    both.do("refresh", "d")
    assert "d" in both.model.made[both.model.current].files
    assert [p.name for p in both.home.path.rglob(".*")] == []
