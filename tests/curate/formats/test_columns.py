"""The kinds of columns for values, at the limits of 64-bit integers."""

from __future__ import annotations

from typing import Any

import pytest

from curate.formats.columns import fits, kind_of


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**53, "int64"),
        (2**63 - 1, "int64"), (2**63, "json"), (-(2**63), "int64"), (-(2**63) - 1, "json"),
        (True, "bool"), (1.0, "double"), ("1", "string"), ([1], "json"), ({}, "json"),
        (None, None),
    ],
)  # fmt: skip
def test_a_value_asks_for_its_kind_and_fits_it(value: Any, kind: str | None) -> None:
    assert kind_of(value) == kind
    assert all(fits(value, column) for column in (kind, "json") if column)
    exact = kind != "int64" or float(value) == value
    assert fits(value, "double") == (kind in ("int64", "double", None) and exact)
    assert fits(value, "int64") == (kind in ("int64", None))
