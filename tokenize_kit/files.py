"""Files of tokenizers, read whole, and files that grow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from llmcurate.base.errors import UsageError

MOST_BYTES = 256 << 20  # of a tokenizer's file; published ones have up to 50 MB


def read_file(path: Path) -> bytes:
    """A tokenizer's file, whole; ``LlmcurateError`` where it cannot be read or is too large."""
    try:
        size = path.stat().st_size
        if size <= MOST_BYTES:
            return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    raise UsageError(f"{path}: no tokenizer, it has {size:,} bytes")


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
