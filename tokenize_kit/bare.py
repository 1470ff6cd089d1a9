"""Decorators of kernels that kernels call: without counted references to arrays, or with them.

numba counts a reference wherever an array comes to a name, in loops and at calls, and an atomic
addition costs more than a look-up in a table. A function that makes no array needs none: whoever
called it holds them all. What it calls is compiled in the same way, so a function that makes arrays
says so where a bare one calls it.
"""

from __future__ import annotations

from typing import Any

from kernel_cache import njit

_BARE: dict[str, Any] = {"nogil": True, "_nrt": False}
_COUNTED: dict[str, Any] = {"nogil": True, "_nrt": True}

njit_bare = njit(**_BARE)
njit_within = njit(**_BARE, forceinline=True)  # a part of its caller: it takes whole tables
njit_counted = njit(**_COUNTED)
