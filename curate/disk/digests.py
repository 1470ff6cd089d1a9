"""Digests: sha256 of what is published or named by others, xxh3-128 of what is only compared."""

from __future__ import annotations

import hashlib
from io import BufferedReader
from pathlib import Path
from typing import Any


def stream_digest(file: BufferedReader, kind: str = "sha256") -> str:
    """The digest in hexadecimal of an open file from its position to its end.

    kind: `xxh3-128`, or an algorithm of hashlib.
    """
    return str(hashlib.file_digest(file, lambda: _state(kind)).hexdigest())


def file_digest(path: str | Path, kind: str = "sha256") -> str:
    """The digest of a file's content in hexadecimal."""
    with open(path, "rb") as file:
        return stream_digest(file, kind)


def text_digest(text: str, kind: str = "sha256") -> str:
    """The digest of a text's UTF-8 bytes in hexadecimal."""
    state = _state(kind)
    state.update(text.encode())
    return str(state.hexdigest())


def _state(kind: str) -> Any:
    if kind != "xxh3-128":
        return hashlib.new(kind, usedforsecurity=False)
    import xxhash

    return xxhash.xxh3_128()
