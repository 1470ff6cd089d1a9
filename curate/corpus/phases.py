"""Long work in phases: a killed run continues after its last complete phase. A phase writes into a
temporary folder, which is synced and renamed when the phase is complete. A phase returns facts
(counts by name). They are stored in its folder with the facts of earlier phases. The folder is
removed after the last phase that reads it. A journal (journal.py) has the digests of files."""

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
    """The files and facts (counts) of the phases that are complete."""

    home: Path
    facts: Facts = field(default_factory=dict)

    def folder(self, phase: str) -> Path:
        return self.home / f"phase-{phase}"

    def file(self, phase: str, name: str) -> Path:
        return self.folder(phase) / name


Make = Callable[[Path, Done], Facts]


@dataclass(frozen=True)
class Phase:
    """A phase of long work."""

    name: str
    make: Make  # gets an empty folder and the done phases, writes files, returns facts (counts)
    frees: tuple[str, ...] = ()  # earlier phases whose files are not needed after this phase


def run_phases(home: Path, phases: Sequence[Phase]) -> Done:
    """Run the phases that are not complete, in order. `home` is the folder of the phases. It must
    be used for one input and one set of settings only, because a complete phase is never run again.
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
    clear_temporary(home)
    for folder in sorted(home.glob("phase-*")):
        _remove(folder)


def _commit(done: Done, phase: Phase) -> None:
    aside = done.home / temporary_name(phase.name)
    aside.mkdir()
    facts = phase.make(aside, done)
    clear_temporary(aside)  # left by killed workers
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
    if not folder.exists():
        return
    journal.release(folder)
    # Renamed first, so that a half-removed folder never looks complete.
    aside = folder.with_name(temporary_name(f"gone-{folder.name}"))
    folder.rename(aside)
    remove(aside, inside=folder.parent)
