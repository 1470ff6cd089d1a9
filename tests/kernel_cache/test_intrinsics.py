"""Kernels that are compiled without counted references."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from kernel_cache.intrinsics import njit_bare

Tables = namedtuple("Tables", "first second")


def _largest(tables, n):
    best = np.int64(0)
    for k in range(n):
        table = tables.first if k & 1 else tables.second
        if table[k] > best:
            best = table[k]
    return best


def test_a_bare_kernel_counts_no_references():
    """numba counts those that a loop takes out of a tuple; that is what costs."""
    tables = Tables(np.arange(9), np.arange(9)[::-1].copy())
    for compiled, counted in ((njit(_largest), True), (njit_bare(_largest), False)):
        assert compiled(tables, 9) == 8
        (text,) = compiled.inspect_llvm().values()
        own = text.split("define")[1]  # the kernel itself, not what Python calls it by
        assert ("@NRT_incref" in own) == counted
