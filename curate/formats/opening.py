"""Files by path or URL."""

from __future__ import annotations

from typing import BinaryIO


def open_input(path: str) -> BinaryIO:
    """A seekable binary file of a local path or of any URL that fsspec knows."""
    if "://" not in path:
        return open(path, "rb")
    import fsspec

    file: BinaryIO = fsspec.open(path, "rb").open()
    return file
