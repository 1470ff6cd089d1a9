"""Places among thresholds are those of a binary search, whatever values and thresholds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.inspect.whatif.figures import CELLS, Places

NUMBER = st.floats(-1e9, 1e9) | st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 1.0])


@pytest.mark.parametrize("side", ["left", "right"])
@given(st.lists(NUMBER, min_size=1, max_size=50), st.integers(0, 99))
def test_places_are_those_of_a_binary_search(
    side: Literal["left", "right"], given_points: list[float], seed: int
) -> None:
    points = np.unique(np.array(given_points))
    draw = np.random.default_rng(seed)
    near = np.concatenate([points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf)])
    spread = draw.uniform(points[0] - 1, points[-1] + 1, CELLS)
    values = np.concatenate([near, spread, [np.inf, -np.inf, 1e300, -1e300]])
    assert (Places(points, side).of(values) == np.searchsorted(points, values, side)).all()


def test_even_thresholds_take_the_short_way() -> None:
    points = np.round(np.linspace(0, 1, 41), 6)
    places = Places(np.unique(np.append(points, [0.3, 0.011])), "left")
    assert len(places._starts) == CELLS
    values = np.append(np.random.default_rng(1).random(CELLS), np.nan)
    assert len(places.of(values)) == CELLS + 1
