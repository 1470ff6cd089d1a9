"""Files that are whole or not there, written aside, fsynced, renamed; and what they should hold."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from llmcurate.base.errors import UsageError


def sync(path: Path) -> None:
    """fsync a file or a folder by name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path, *, must: bool = False) -> None:
    """Remove a folder with all that is in it, or a link and not what it leads to. ``must``: raise
    ``OSError`` where it cannot be removed.
    """
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=not must)


def _aside(path: Path) -> Path:
    """A name beside ``path`` that no other process has."""
    return path.with_name(f".part-{os.getpid()}-{os.urandom(4).hex()}-{path.name}")


def clear(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-written in ``folder``, of that ``name`` or of any."""
    leftover = re.compile(
        r"\.part-(\d+)-[0-9a-f]{8}-" + (".+" if name is None else re.escape(name))
    )
    for path in folder.iterdir():
        if (match := leftover.fullmatch(path.name)) and not _alive(int(match[1])):
            _discard(path)


def _alive(process: int) -> bool:
    """Whether it is another process that runs; ours has our number by chance."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # of another user
    return process != os.getpid()


def _discard(path: Path) -> None:
    if path.is_dir():
        remove(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside ``path`` for this process alone: the file or the folder of files that is made
    there becomes ``path`` at the end, durably, and an error leaves nothing of it.
    """
    clear(path.parent, path.name)
    aside = _aside(path)
    try:
        yield aside
        for file in sorted(aside.iterdir()) if aside.is_dir() else ():
            sync(file)
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        _discard(aside)


def drop(folder: Path) -> None:
    """Remove a folder so that it is whole or not there; raises ``OSError`` where it cannot be."""
    aside = _aside(folder)
    folder.rename(aside)
    remove(aside, must=True)


def write_atomic(path: Path, *data: bytes | memoryview) -> None:
    """Replace ``path`` by the parts of ``data``, one after the other; a crash leaves the old file
    or the new one.
    """
    with replacing(path) as aside, aside.open("wb") as file:
        file.writelines(data)


def encode_json(value: Any) -> bytes:
    """JSON as people read it: two spaces, UTF-8 kept, a final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def checksum(data: bytes) -> str:
    """xxh3-128, in hexadecimal."""
    return xxhash.xxh3_128_hexdigest(data)


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """The values, and under ``checksum`` that of their JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return {**values, "checksum": checksum(text.encode())}


def unseal(values: Any) -> dict[str, Any]:
    """What ``seal`` was given; raises ``ValueError`` where it is anything else."""
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    content = {name: value for name, value in values.items() if name != "checksum"}
    if seal(content) != values:
        raise ValueError("it is not what was written")
    return content


def read_json(path: Path, limit: int = 64_000_000) -> dict[str, Any]:
    """An object from a file that anyone may have written; ``LlmcurateError`` names it."""
    try:
        if path.stat().st_size > limit:
            raise UsageError(f"{path}: larger than {limit} bytes")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a JSON object")
    return values
