"""Word and block lists: one way to read them, whatever filter uses them.

A list is a file by path, or a URL with the sha256 of what it holds; .gz is unpacked. Lines are
entries, blank lines and those that begin with `#` are passed over, and what stands behind
white space and `#` is a comment.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib

from curate.errors import UsageError

_COMMENT = re.compile(r"(^|\s)#.*")


def read_list(location: str, sha256: str | None, label: str, key: str) -> bytes:
    """The unpacked content of a list. UsageError where it cannot be read, is not what sha256
    says, or is a URL without one; `label` and `key` name the setting in messages."""
    if "://" in location and not sha256:
        raise UsageError(f"{label}: {location} is a URL; give {key} beside it")
    import fsspec

    try:
        with fsspec.open(location, "rb") as f:
            data: bytes = f.read()
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(f"{label}: cannot read {location}: {error}") from None
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise UsageError(f"{label}: {location} has another sha256 than the one given")
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{label}: {location} is a damaged .gz file: {error}") from None
    return data.removeprefix(b"\xef\xbb\xbf")


def entries(data: bytes) -> list[str]:
    """The entries of a list of words, without comments, in the order of the lines."""
    lines = (
        _COMMENT.sub("", line).strip() for line in data.decode("utf-8", "replace").splitlines()
    )
    return [line for line in lines if line]
