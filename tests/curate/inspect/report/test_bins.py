"""Histograms: every value has a bin, and limits lie between two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.inspect.report.store import Histogram, Range, edges_of
from llmcurate.base.messages import json_values

numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


@given(st.lists(numbers, min_size=1, max_size=40), st.lists(numbers, max_size=2), st.booleans())
def test_every_value_falls_into_a_bin(
    values: list[float], limits: list[float], whole: bool
) -> None:
    data = np.array([float(round(v)) for v in values] if whole else values)
    value_range = Range(whole)
    value_range.add(data)
    histogram = edges_of(value_range, limits)
    assert (np.diff(histogram.edges) > 0).all()
    histogram.add(data)
    assert histogram.counts.sum() == len(values) and len(histogram.counts) <= 100


def test_a_value_at_an_edge_is_in_the_bin_above_and_at_the_last_edge_in_the_last() -> None:
    histogram = Histogram(np.array([0.0, 1.0, 2.0]), "linear")
    for value, bin_ in ((-1, 0), (0, 0), (0.9, 0), (1, 1), (1.5, 1), (2, 1), (3, 1)):
        before = histogram.counts.copy()
        histogram.add(np.array([float(value)]))
        assert np.flatnonzero(histogram.counts - before).tolist() == [bin_], value


def test_whole_numbers_have_a_bin_each_and_limits_lie_between_two() -> None:
    value_range = Range(True)
    value_range.add(np.array([0.0, 8.0]))
    assert edges_of(value_range, [2]).edges.tolist() == [i - 0.5 for i in range(10)]


def test_a_histogram_ends_near_a_small_limit() -> None:
    value_range = Range(False)
    value_range.add(np.array([0.0, 0.9]))
    histogram = edges_of(value_range, [0.01])
    assert histogram.open and histogram.edges[-1] == pytest.approx(0.15)
    assert json_values(histogram)["open"] is True
