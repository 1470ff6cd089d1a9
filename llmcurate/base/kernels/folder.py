"""The folder of compiled kernels."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def kernels_folder() -> Path | None:
    """Return the folder KERNELS (defined in cache.py), or None if the user has no home."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    if chosen := os.environ.get("LLMCURATE_CACHE"):
        return Path(chosen).expanduser() / "kernels"
    with suppress(RuntimeError):
        user = os.environ.get("XDG_CACHE_HOME")
        return (Path(user) if user else Path.home() / ".cache") / "llmcurate" / "kernels"
    return None
