"""Parts of kernels, which Python cannot call, as functions that it can."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba

from llmcurate.base.kernels.cache import KernelCache


@functools.cache
def callable_kernel(part: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that does nothing but call this one; kept, as if the part were a kernel."""
    kernel: Any = numba.njit(lambda *arguments: part(*arguments))
    kernel._cache = KernelCache(part.py_func)  # type: ignore[attr-defined]
    return kernel
