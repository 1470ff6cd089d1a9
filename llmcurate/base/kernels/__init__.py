"""Kernels: functions compiled by numba, whose machine code is cached (cache.py).

The package loads numba, which takes most of a second, only when `njit` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from llmcurate.base.kernels.cache import njit as njit


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of an array. For kernels, arrays in memory and arrays mapped from a
    file then have the same type, so a kernel is compiled only once for both."""
    import numpy as np

    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def __getattr__(name: str) -> Any:
    if name != "njit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from llmcurate.base.kernels.cache import njit

    return njit
