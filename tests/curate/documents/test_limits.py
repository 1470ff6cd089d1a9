"""Limits: which values are beyond a threshold, at the threshold itself too."""

from __future__ import annotations

import numpy as np
import pytest

from curate.documents.documents import documents
from curate.documents.limits import Limit


@pytest.mark.parametrize(
    ("above", "closed", "beyond"),
    [
        (True, False, [False, False, True]),
        (True, True, [False, True, True]),
        (False, False, [True, False, False]),
        (False, True, [True, True, False]),
    ],
)
def test_a_closed_limit_drops_the_threshold_itself(
    above: bool, closed: bool, beyond: list[bool]
) -> None:
    limit = Limit("rule", "column", "setting", 5.0, above=above, closed=closed)
    assert limit.over(np.array([4.0, 5.0, 6.0]), 5.0).tolist() == beyond


def test_extra_columns_are_carried_along() -> None:
    assert documents({"text": ["a", "b"], "score": [1, 2]}).table["score"].to_pylist() == [1, 2]
