"""Kernels that are compiled without counted references."""

from __future__ import annotations

from collections import namedtuple

import numba
import numpy as np
import pytest

from kernel_cache import njit
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
    for part, counted in ((njit()(_largest), True), (njit_bare(_largest), False)):
        kernel = numba.njit(lambda tables, n, part=part: part(tables, n))
        assert kernel(tables, 9) == 8
        (text,) = part.inspect_llvm().values()
        assert ("@NRT_incref" in text.split("define")[1]) == counted


def test_a_part_of_kernels_is_not_for_python():
    part = njit_bare(_largest)
    tables = Tables(np.arange(9), np.arange(9))
    for _ in range(2):  # before and after it has been compiled into a kernel
        with pytest.raises(TypeError, match="_largest is a part of kernels"):
            part(tables, 9)
        assert numba.njit(lambda tables, n: part(tables, n))(tables, 9) == 8
