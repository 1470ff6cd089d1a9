"""Files that are whole or not there: written aside, fsynced, renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from train.errors import TrainError


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


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``; a crash leaves the old file or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    aside.write_bytes(data)
    sync(aside)
    aside.replace(path)
    sync(path.parent)


def sha256(path: Path) -> str:
    """Of a file, in bounded memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def encode_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def read_json(path: Path, limit: int = 64_000_000) -> dict[str, Any]:
    """An object from a file that anyone may have written; ``TrainError`` names it."""
    try:
        if path.stat().st_size > limit:
            raise TrainError(f"{path}: larger than {limit} bytes", exit_code=2)
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise TrainError(f"{path}: cannot be read ({error})", exit_code=2) from error
    if not isinstance(values, dict):
        raise TrainError(f"{path}: expected a JSON object", exit_code=2)
    return values
