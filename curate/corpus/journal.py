"""The journal of a resolve: what it has left in its folder so far, and the seals of that.

A file gets its seal from who wrote it: this process, or the worker of a task (`run_tasks`). It is
compared when it is released, since nothing needs it any more; so what was made of it was made of
what was written. What a killed process left is compared before it is taken up; what has no seal is
removed. Where a file differs all of the folder goes, and the resolve begins anew from the sketches.

The functions of this module are about the resolve that this thread works for (`process.Threads`
hands it on), and do nothing outside of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Lock

from llmcurate.base.disk import files
from llmcurate.base.disk.files import is_below, remove
from llmcurate.base.disk.seals import Seal, fault, seal
from llmcurate.base.errors import Damaged

NAME = ".journal"
_current: ContextVar[Journal | None] = ContextVar("journal", default=None)


def write(folder: Path, seals: Mapping[str, Seal]) -> None:
    """Makes the next resolve take up these files of a folder, by their names."""
    files.write_text(folder / NAME, "".join(f"{json.dumps(row)}\n" for row in seals.items()))


def finish(folder: Path) -> dict[str, Seal]:
    """The seals of what a resolve has left for good, by name; the journal ends."""
    journal = Journal(folder)
    journal.read()
    (folder / NAME).unlink(missing_ok=True)
    return journal.seals


def active() -> bool:
    """Return whether this thread works for a resolve."""
    return _current.get() is not None


def note(path: Path, sealed: Seal | None = None) -> None:
    """A file is there. sealed: by its writer; None: by this call."""
    if journal := _current.get():
        journal.note(path, sealed)


def moved(before: Path, now: Path) -> None:
    """A folder has another name; all files in it are sealed as far as they are not."""
    if journal := _current.get():
        journal.moved(before, now)


def release(path: Path) -> None:
    """Compares a file, or all below a folder, which the caller removes next."""
    if journal := _current.get():
        journal.release(path)


@contextmanager
def resolving(folder: Path) -> Iterator[None]:
    """A resolve, which leaves files in the folder. Damaged where one of them is not what was
    written, at the beginning or when it was read; the folder is gone then."""
    journal = Journal(folder)
    token = _current.set(journal)
    try:
        journal.take_up()
        try:
            with files.listening(journal.note):
                yield
        except Exception as error:
            journal.check(error)
            raise
        journal.check()
    finally:
        _current.reset(token)


class Journal:
    """The journal in a folder: a line per file, its name and seal, or null after it was released.
    Threads may call it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seals: dict[str, Seal] = {}
        self._lock = Lock()

    def read(self) -> None:
        """Reads what stands there."""
        path = self.folder / NAME
        for line in path.read_bytes().splitlines() if path.is_file() else ():
            try:
                name, sealed = json.loads(line)
            except (ValueError, TypeError):  # cut where the process was killed: as if not there
                continue
            if is_below(name):
                self._set(name, sealed)

    def take_up(self) -> None:
        """Compares what a killed process left; what has no seal is removed."""
        self.read()
        for name in [n for n in self.seals if f"/{files.TEMPORARY}" in f"/{n}"]:
            del self.seals[name]  # of half a phase, or of a task's scratch
        self.check()
        for left in sorted(self.folder.rglob("*")):
            if left.is_file() and left.name != NAME and self._name(left) not in self.seals:
                remove(left, inside=self.folder)

    def note(self, path: Path, sealed: Seal | None = None) -> None:
        """As the function of this name."""
        if self.folder in path.parents and path.name != NAME:
            self._append({self._name(path): sealed or seal(path)})

    def moved(self, before: Path, now: Path) -> None:
        """As the function of this name."""
        seals = {p: self.seals.get(self._name(before / p.name)) for p in now.iterdir()}
        gone = dict.fromkeys(name for name in self._below(before))
        self._append({self._name(p): sealed or seal(p) for p, sealed in seals.items()} | gone)

    def release(self, path: Path) -> None:
        """As the function of this name."""
        names = self._below(path)
        for name in names:
            self._compare(name)
        self._append(dict.fromkeys(names))

    def check(self, cause: Exception | None = None) -> None:
        """Compares all. cause: what else would end the resolve."""
        if not isinstance(cause, Damaged):
            for name in list(self.seals):
                self._compare(name, cause)

    def _compare(self, name: str, cause: Exception | None = None) -> None:
        if (difference := fault(self.folder / name, self.seals[name])) is not None:
            remove(self.folder, inside=self.folder.parent)
            raise Damaged(f"{self.folder / name} {difference}") from cause

    def _append(self, rows: Mapping[str, Seal | None]) -> None:
        with self._lock, (self.folder / NAME).open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows.items())
            for name, sealed in rows.items():
                self._set(name, sealed)

    def _set(self, name: str, sealed: Seal | None) -> None:
        if sealed is None:
            self.seals.pop(name, None)
        else:
            self.seals[name] = sealed

    def _below(self, path: Path) -> list[str]:
        """The names of a file, or of all below a folder."""
        name = self._name(path)
        with self._lock:
            below = [n for n in self.seals if n.startswith(f"{name}/")]
            return [name] if name in self.seals else below

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()
