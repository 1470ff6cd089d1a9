"""Files that appear whole or not at all: write aside, fsync, rename, fsync the folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from tokenize_kit.errors import usage_error

MOST_BYTES = 256 << 20  # of a tokenizer's file; published ones have up to 50 MB


def read_file(path: Path) -> bytes:
    """A tokenizer's file, whole; ``TokenizerError`` where it cannot be read or is too large."""
    try:
        size = path.stat().st_size
        if size <= MOST_BYTES:
            return path.read_bytes()
    except OSError as error:
        raise usage_error(f"{path}: {error.strerror}") from None
    raise usage_error(f"{path}: no tokenizer, it has {size:,} bytes")


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def to_json(value: Any) -> bytes:
    """JSON as people read it: two spaces, UTF-8 kept, a final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def seal(values: dict[str, Any]) -> dict[str, Any]:
    """The values, and under ``checksum`` the xxh3-128 of their JSON with sorted keys, as `train`
    compares it."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return {**values, "checksum": xxhash.xxh3_128_hexdigest(text.encode())}


def sync(path: Path) -> None:
    """fsync a file or a folder by name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_at(path: Path, size: int) -> BinaryIO:
    """A file to append to, cut to so many bytes; a new one for none."""
    if not size:
        return path.open("wb")
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


def sync_open(file: BinaryIO) -> None:
    """Brings what was written to an open file to disk."""
    file.flush()
    os.fsync(file.fileno())


def _alive(process: int) -> bool:
    """Whether it is another process that runs; ours has our number by chance."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # of another user
    return process != os.getpid()


def write_atomic(path: Path, *data: bytes | memoryview) -> None:
    """Replace ``path`` by the parts of ``data``, one after the other; a crash leaves the old file
    or the new one, never a mixture. The name aside is of this process alone; what a killed one
    left of the same file is removed."""
    leftover = re.compile(rf"\.part-(\d+)-[0-9a-f]{{8}}-{re.escape(path.name)}")
    for old in path.parent.iterdir():
        if (match := leftover.fullmatch(old.name)) and not _alive(int(match[1])):
            old.unlink(missing_ok=True)
    aside = path.with_name(f".part-{os.getpid()}-{os.urandom(4).hex()}-{path.name}")
    try:
        with aside.open("wb") as file:
            file.writelines(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)
