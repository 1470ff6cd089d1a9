"""Seals: the size and digest of a file right after it was written, compared before its next use.

A file is sealed right after it was written, while the system still has its content in memory. The
seal is recorded as [size, digest] in the run's list of finished work (the ledger), where the digest
is an xxh3-128 in hexadecimal, or in the manifest beside the files, where it is a sha256."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcurate.base.disk.files import file_digest, listening
from llmcurate.base.messages import Message, Task

Seal = list[Any]
SealedPath = list[Any]  # [path, seal]
DIGEST = "xxh3-128"
TASK_BYTES = 256 << 20  # bytes that one task compares
SHA256_DIGITS = 64


def seal(path: Path) -> Seal:
    """Return the seal (size and digest) of a file as it is now."""
    return [path.stat().st_size, file_digest(path, DIGEST)]


def seal_folder(folder: Path) -> dict[str, Seal]:
    """Return the seals (sizes and digests) of all files below a folder, by relative path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): seal(path) for path in files}


def fault(path: Path, sealed: object, content: bool = True) -> str | None:
    """Return how a file differs from its seal (size, digest), or None if it does not. If `content`,
    the digest is compared, too. If the size in the seal is None, the size is not compared."""
    if not isinstance(sealed, (list, tuple)) or len(sealed) < 2:
        return "has a damaged record"
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
    """Yield a list that gets [path, [size, digest]] of each file that this thread completes."""
    sealed: list[SealedPath] = []
    with listening(lambda path: sealed.append([str(path), seal(path)])):
        yield sealed


@dataclass(frozen=True)
class CompareTask(Task):
    files: list[SealedPath]


@dataclass(frozen=True)
class Faults(Message):
    faults: dict[str, str]


def compare(task: CompareTask) -> Faults:
    faults = {path: fault(Path(path), sealed) for path, sealed in task.files}
    return Faults({path: text for path, text in faults.items() if text is not None})


def tasks(files: Iterable[tuple[Path, Seal]]) -> Iterator[CompareTask]:
    """Yield tasks with which workers compare the files with their seals (size, digest)."""
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
