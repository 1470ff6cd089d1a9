"""The journal of a resolve (the call in which a corpus step decides on all documents): a list of
the files that the call wrote so far, with a seal (size and digest) of each. The process that writes
a file also seals it. A file is compared with its seal when it is released after its last use, and
when a resolve continues after a kill. If a file differs, the step's folder is removed, and the
resolve starts again from the sketches (short descriptions of documents). `note`, `moved` and
`release` apply to the resolve of the current thread, if there is one."""

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
    """Write a journal into a step's folder: the name and the seal (size, digest) of each file. When
    a later run resumes work in this folder, `resolving` compares the files with these seals."""
    files.write_text(folder / NAME, "".join(f"{json.dumps(row)}\n" for row in seals.items()))


def finish(folder: Path) -> dict[str, Seal]:
    """Delete the journal. Return the seals (size, digest) of the remaining files, by file name."""
    journal = Journal(folder)
    journal.read()
    (folder / NAME).unlink(missing_ok=True)
    return journal.seals


def active() -> bool:
    return _current.get() is not None


def note(path: Path, sealed: Seal | None = None) -> None:
    """Record a new file in the journal. `sealed` is its seal (size, digest), made now if None."""
    if journal := _current.get():
        journal.note(path, sealed)


def moved(before: Path, now: Path) -> None:
    """Record that a folder was renamed. Seal each unsealed file in it (record size and digest)."""
    if journal := _current.get():
        journal.moved(before, now)


def release(path: Path) -> None:
    """Compare a file, or all files of a folder, with recorded digests before its removal."""
    if journal := _current.get():
        journal.release(path)


@contextmanager
def resolving(folder: Path) -> Iterator[None]:
    """Record the files that the `with` block writes into the folder, with their digests. Compare
    files with their digests before the block (if a killed run left them), in `release`, and after
    the block. If a file differs, remove the folder and raise Damaged."""
    journal = Journal(folder)
    token = _current.set(journal)
    try:
        journal.restore()
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
    """A list of the files in a folder. A line has the name of a file and its seal (size, digest),
    or null if the file was moved or is no longer used. Several threads may use the object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seals: dict[str, Seal] = {}
        self._lock = Lock()

    def read(self) -> None:
        path = self.folder / NAME
        for line in path.read_bytes().splitlines() if path.is_file() else ():
            try:
                name, sealed = json.loads(line)
            except (ValueError, TypeError):  # a line cut short by a kill is ignored
                continue
            if is_below(name):
                self._set(name, sealed)

    def restore(self) -> None:
        """Check the files that a killed process left in `folder`. If a file differs from its
        digest, remove the folder and raise Damaged. Remove files without a recorded digest."""
        self.read()
        for name in [n for n in self.seals if f"/{files.TEMPORARY}" in f"/{n}"]:
            del self.seals[name]  # from an unfinished phase, or from a task's scratch folder
        self.check()
        for left in sorted(self.folder.rglob("*")):
            if left.is_file() and left.name != NAME and self._name(left) not in self.seals:
                remove(left, inside=self.folder)

    def note(self, path: Path, sealed: Seal | None = None) -> None:
        if self.folder in path.parents and path.name != NAME:
            self._append({self._name(path): sealed or seal(path)})

    def moved(self, before: Path, now: Path) -> None:
        seals = {p: self.seals.get(self._name(before / p.name)) for p in now.iterdir()}
        removed = dict.fromkeys(self._below(before))
        self._append({self._name(p): sealed or seal(p) for p, sealed in seals.items()} | removed)

    def release(self, path: Path) -> None:
        names = self._below(path)
        for name in names:
            self._compare(name)
        self._append(dict.fromkeys(names))

    def check(self, cause: Exception | None = None) -> None:
        """Compare all recorded files with their digests. If a file differs, raise Damaged. `cause`
        is the error that stopped the writing of the files, or None."""
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
        name = self._name(path)
        with self._lock:
            below = [n for n in self.seals if n.startswith(f"{name}/")]
            return [name] if name in self.seals else below

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()
