"""Seals: size and digest of a file as it was committed, compared before it is used again.

Who commits a file seals it, right after it was written and while the system still has it in memory;
the seals stand where the commit is recorded: in the ledger, or in the manifest beside the files. A
seal is [size, digest], as JSON has it: xxh3-128 in hexadecimal, or the sha256 of a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import file_digest, listening
from llmcurate.base.errors import Damaged
from llmcurate.base.messages import Message, Task

Seal = list[Any]
SealedPath = list[Any]  # [path, seal], as a task has it
DIGEST = "xxh3-128"
TASK_BYTES = 256 << 20  # what one task compares
SHA256_DIGITS = 64


def seal(path: Path) -> Seal:
    """The seal of a file as it is now."""
    return [path.stat().st_size, file_digest(path, DIGEST)]


def seal_folder(folder: Path) -> dict[str, Seal]:
    """The seals of all files below a folder, by their names from there."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): seal(path) for path in files}


def fault(path: Path, sealed: object, content: bool = True) -> str | None:
    """What is wrong with a file, or None. content: whether its bytes are compared as well; a size
    of None is not known."""
    if not isinstance(sealed, (list, tuple)) or len(sealed) < 2:
        return "has a record that is damaged"
    size, digest = sealed[0], str(sealed[1])
    kind = "sha256" if len(digest) == SHA256_DIGITS else DIGEST
    try:
        if path.is_symlink() or not path.is_file():
            return "is missing"
        if size is not None and path.stat().st_size != size:
            return f"has {path.stat().st_size:,} bytes and was written with {size}"
        if content and file_digest(path, kind) != digest:
            return "is not what was written"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


@contextmanager
def sealing() -> Iterator[list[SealedPath]]:
    """The files that this thread puts in their place within (`listening`), sealed at once."""
    sealed: list[SealedPath] = []
    with listening(lambda path: sealed.append([str(path), seal(path)])):
        yield sealed


_stamps: dict[str, tuple[Seal, tuple[int, ...]]] = {}  # of files that this process compared


def verify(own: Iterable[SealedPath], shared: Iterable[SealedPath] = ()) -> None:
    """Compares what a task is about to read; Damaged names the first file that is not what was
    written. own: files of this task; shared: those that every task reads, which a process compares
    once, and again if a time of change is another."""
    for path, sealed in own:
        _compared(path, sealed)
    for path, sealed in shared:
        if _stamps.get(path) != (sealed, stamp := _stamp(path)):
            _compared(path, sealed)
            _stamps[path] = sealed, stamp


def _compared(path: str, sealed: Seal) -> None:
    if (difference := fault(Path(path), sealed)) is not None:
        raise Damaged(f"{path} {difference}")


def _stamp(path: str) -> tuple[int, ...]:
    """Another one after every write: nobody sets the time of a file's last change of state."""
    try:
        stat = Path(path).stat()
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@dataclass(frozen=True)
class CompareTask(Task):
    """Files to be compared by content."""

    files: list[SealedPath]


@dataclass(frozen=True)
class Faults(Message):
    """What is wrong with files, by their paths."""

    faults: dict[str, str]


def compare(task: CompareTask) -> Faults:
    """Return the faults of a task's files."""
    faults = {path: fault(Path(path), sealed) for path, sealed in task.files}
    return Faults({path: text for path, text in faults.items() if text is not None})


def tasks(files: Iterable[tuple[Path, Seal]]) -> Iterator[CompareTask]:
    """The tasks of `compare` over so many files."""
    waiting: list[SealedPath] = []
    size = part = 0
    for path, sealed in files:
        waiting.append([str(path), sealed])
        size += sealed[0] or TASK_BYTES // 8
        if size >= TASK_BYTES:
            yield CompareTask(part, waiting)
            waiting, size, part = [], 0, part + 1
    if waiting:
        yield CompareTask(part, waiting)
