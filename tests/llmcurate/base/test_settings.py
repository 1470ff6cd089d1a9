"""Settings by dotted names."""

from __future__ import annotations

from typing import Any

import pytest

from llmcurate.base.settings import unflatten


@pytest.mark.parametrize(
    ("values", "nested"),
    [
        ({"a.b": 1, "a.c": 2}, {"a": {"b": 1, "c": 2}}),
        ({"a": "rope", "a.theta": 2}, {"a": {"kind": "rope", "theta": 2}}),
        ({"a": None, "a.b": 1}, {"a": {"b": 1}}),
        ({"a.b": 1, "a": None}, {"a": None}),
        ({"a.b.c": 1, "a.b": None, "a.d": 2}, {"a": {"b": None, "d": 2}}),
        ({"a.c.d": 1, "a": None, "a.b": 2}, {"a": {"b": 2}}),
    ],
    ids=["objects", "kinds", "none first", "none last", "none inside", "none between"],
)
def test_dotted_names_are_nested_and_of_none_and_its_settings_the_later_counts(
    values: dict[str, Any], nested: dict[str, Any]
) -> None:
    assert unflatten(values) == nested
