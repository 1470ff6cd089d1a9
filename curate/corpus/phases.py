"""Long work in phases: each one's files are committed together, so a killed run goes on after them.

A phase writes into a folder aside, which is synced and renamed when it is whole. A folder that an
earlier phase left is removed once nothing that follows reads it. What a phase returns, its facts,
stands in its folder beside the facts of all phases before it. The journal of the resolve
(corpus/journal.py) has the seals of all files; they are compared when a folder is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from curate.corpus import journal
from llmcurate.base.disk.files import clear_temporary, remove, sync_path, temporary_name

FACTS = "facts.json"
Facts = dict[str, int]  # counts, by name


@dataclass
class Done:
    """What phases have left so far. facts: what they returned, all together."""

    home: Path
    facts: Facts = field(default_factory=dict)

    def folder(self, phase: str) -> Path:
        """The files of a phase."""
        return self.home / f"phase-{phase}"

    def file(self, phase: str, name: str) -> Path:
        """One of them."""
        return self.folder(phase) / name


Make = Callable[[Path, Done], Facts]


@dataclass(frozen=True)
class Phase:
    """make: called with an empty folder to write into and what was done before; returns facts.
    frees: phases before this one whose files nothing needs after it."""

    name: str
    make: Make
    frees: tuple[str, ...] = ()


def run_phases(home: Path, phases: Sequence[Phase]) -> Done:
    """Does what is missing of the phases, in order.

    The same phases must mean the same files: `home` is for one input and one set of settings.
    """
    clear_temporary(home)
    done = Done(home)
    ready = 0
    for number, phase in enumerate(phases, start=1):
        facts = done.file(phase.name, FACTS)
        if facts.exists():
            ready, done.facts = number, json.loads(facts.read_text(encoding="utf-8"))
    for number, phase in enumerate(phases, start=1):
        if number > ready:
            _commit(done, phase)
        if number >= ready:
            for name in phase.frees:
                _remove(done.folder(name))
    return done


def forget(home: Path) -> None:
    """Removes what phases left."""
    clear_temporary(home)
    for folder in sorted(home.glob("phase-*")):
        _remove(folder)


def _commit(done: Done, phase: Phase) -> None:
    aside = done.home / temporary_name(phase.name)
    aside.mkdir()
    facts = phase.make(aside, done)
    clear_temporary(aside)  # what workers that died left
    all_facts = {**done.facts, **facts}
    (aside / FACTS).write_text(json.dumps(all_facts), encoding="utf-8")
    for path in aside.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    sync_path(aside)
    aside.rename(done.folder(phase.name))
    journal.moved(aside, done.folder(phase.name))
    sync_path(done.home)
    done.facts = all_facts


def _remove(folder: Path) -> None:
    """Takes a phase's folder away as a whole: half of one must not look like all of it."""
    if not folder.exists():
        return
    journal.release(folder)
    aside = folder.with_name(temporary_name(f"gone-{folder.name}"))
    folder.rename(aside)
    remove(aside, inside=folder.parent)
