"""Parts of kernels, which Python cannot call, as functions that it can."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba


@functools.cache
def callable_kernel(part: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that does nothing but call this one."""
    kernel: Callable[..., Any] = numba.njit(lambda *arguments: part(*arguments))
    return kernel
