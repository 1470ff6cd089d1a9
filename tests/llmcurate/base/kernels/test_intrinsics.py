"""Parts of kernels that stand in for numpy's functions do as these do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.extract.inputs import order_of
from llmcurate.base.kernels.intrinsics import copy, lower_bound, sorted_index
from tests.callable_kernels import callable_kernel

numbers = st.integers(-5, 5) | st.integers(-(2**62), 2**62)


@settings(deadline=None)
@given(st.lists(numbers), numbers)
def test_a_search_finds_what_searchsorted_finds(values, value):
    ascending = np.array(sorted(values), np.int64)
    found = callable_kernel(lower_bound)(ascending, np.int64(value))
    assert found == np.searchsorted(ascending, value)
    place = callable_kernel(sorted_index)(ascending, np.int64(value))
    assert place == (found if value in values else -1)


@settings(deadline=None)
@given(st.lists(numbers))
def test_an_order_is_that_of_a_stable_sort(values):
    keys = np.array(values, np.int64)
    assert callable_kernel(order_of)(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@settings(deadline=None)
@given(st.binary(max_size=9), st.data())
def test_a_copy_changes_nothing_around_it(source, data):
    a = data.draw(st.integers(0, len(source)))
    z = data.draw(st.integers(a, len(source)))
    out = np.zeros(20, np.uint8)
    assert callable_kernel(copy)(np.frombuffer(source, np.uint8), a, z, out, 3) == 3 + z - a
    assert out.tobytes() == bytes(3) + source[a:z] + bytes(17 - (z - a))
