"""Kernels: functions compiled by numba, whose machine code is kept (kernels.py).

Importing this package loads no numba, which takes most of a second; `njit` does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from kernel_cache.kernels import njit as njit


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that is not written to: one type for kernels, whether memory or a file holds it."""
    import numpy as np

    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def kernels_folder() -> Path | None:
    """KERNELS; None where the user has no home."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    if chosen := os.environ.get("LLMCURATE_CACHE"):
        return Path(chosen).expanduser() / "kernels"
    with suppress(RuntimeError):
        user = os.environ.get("XDG_CACHE_HOME")
        return (Path(user) if user else Path.home() / ".cache") / "llmcurate" / "kernels"
    return None


def __getattr__(name: str) -> Any:
    if name != "njit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernel_cache.kernels import njit

    return njit
