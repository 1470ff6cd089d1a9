"""Kernels: functions compiled by numba, whose machine code is kept (kernels.py).

Importing this package loads no numba, which takes most of a second; `njit` does.
"""

from __future__ import annotations

from contextlib import suppress

from kernel_cache import start

TYPE_CHECKING = False  # typing is not imported before `watch` looks
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

    from kernel_cache.kernels import njit as njit

with suppress(FileNotFoundError):  # the working folder is gone
    start.watch()


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that is not written to: one type for kernels, whether memory or a file holds it."""
    import numpy as np

    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def __getattr__(name: str) -> Any:
    if name != "njit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernel_cache.kernels import njit

    return njit
