"""Whose Python may run here: what a user has named by its file, on this machine, or allows.

A model that somebody else has trained may hold any Python, which could do what its user can. So
what comes out of a folder runs where its text is that of a file that the user named before, in this
process or in an earlier one (``trusted-code`` of the cache, a digest a line), or under
``--trust-code``.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

TRUST_CODE = "LLMCURATE_TRUST_CODE"  # a variable of the environment, which all processes see

_trusted: set[str] = set()


def digest_of(code: str) -> str:
    """SHA-256."""
    return hashlib.sha256(code.encode("utf-8")).hexdigest()


def trust(code: str) -> None:
    """Let this text run, here and later on this machine."""
    digest = digest_of(code)
    _trusted.add(digest)
    with suppress(OSError, RuntimeError):  # without a cache it is asked for the next time
        path = _record()
        if digest not in _recorded(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="ascii") as file:
                file.write(f"{digest}\n")


def trusted(code: str) -> bool:
    """Whether this text may run."""
    digest = digest_of(code)
    if os.environ.get(TRUST_CODE) == "1" or digest in _trusted:
        return True
    with suppress(OSError, RuntimeError):
        return digest in _recorded(_record())
    return False


def _recorded(path: Path) -> list[str]:
    return path.read_text(encoding="ascii", errors="replace").split() if path.is_file() else []


def _record() -> Path:
    """In LLMCURATE_CACHE, else in ``llmcurate`` of the platform's folder for caches."""
    if chosen := os.environ.get("LLMCURATE_CACHE"):
        return Path(chosen).expanduser() / "trusted-code"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llmcurate" / "trusted-code"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llmcurate" / "trusted-code"
