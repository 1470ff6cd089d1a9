"""Seals: size and digest of a file as it was committed, compared before it is used again.

Who commits a file seals it, right after it was written and while the system still has it in memory;
the seals stand where the commit is recorded: in the ledger, or in the manifest beside the files. A
seal is [size, digest], as JSON has it: xxh3-128 in hexadecimal, or the sha256 of a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from curate.disk.elsewhere import all_files, seal_of, version_elsewhere
from curate.disk.files import file_digest

Seal = list[Any]
DIGEST = "xxh3-128"
TASK_BYTES = 256 << 20  # what one task compares
SHA256_DIGITS = 64


def seal(path: Path) -> Seal:
    """The seal of a file as it is now. Of one whose content is elsewhere nothing is read."""
    if version := version_elsewhere(path):
        return seal_of(version)
    return [path.stat().st_size, file_digest(path, DIGEST)]


def seal_folder(folder: Path) -> dict[str, Seal]:
    """The seals of all files below a folder, by their names from there."""
    files = sorted(Path(entry.path) for entry, _ in all_files(folder))
    return {path.relative_to(folder).as_posix(): seal(path) for path in files}


def fault(path: Path, sealed: object, content: bool = True) -> str | None:
    """What is wrong with a file, or None. content: whether its bytes are compared as well; a size
    of None is not known. Content elsewhere has the name of its bytes, which is compared."""
    if not isinstance(sealed, (list, tuple)) or len(sealed) < 2:
        return "has a record that is damaged"
    size, digest = sealed[0], str(sealed[1])
    kind = "sha256" if len(digest) == SHA256_DIGITS else DIGEST
    if version := version_elsewhere(path):
        other = (size, digest) != tuple(seal_of(version)) and kind == DIGEST
        return "is not what was written" if other else None
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


def compare_files(payload: dict[str, Any]) -> dict[str, list[str]]:
    """What `compare` reads and writes."""
    return {"reads": [path for path, _ in payload["files"]], "writes": []}


def compare(payload: dict[str, Any]) -> dict[str, Any]:
    """A task: files (path, seal) compared by content; returns the faults by path."""
    faults = {path: fault(Path(path), sealed) for path, sealed in payload["files"]}
    return {"faults": {path: what for path, what in faults.items() if what is not None}}


def tasks(files: Iterable[tuple[Path, Seal]]) -> Iterator[dict[str, Any]]:
    """The tasks of `compare` over so many files."""
    waiting: list[tuple[str, Seal]] = []
    size = part = 0
    for path, sealed in files:
        waiting.append((str(path), sealed))
        size += sealed[0] or TASK_BYTES // 8
        if size >= TASK_BYTES:
            yield {"part": part, "files": waiting}
            waiting, size, part = [], 0, part + 1
    if waiting:
        yield {"part": part, "files": waiting}
