"""Rows of stage files compare as plain Python says, and are found by their numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from curate.documents.documents import EDIT, NUMBER
from curate.inspect.whatif.rows import merged, places, same_rows

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.large_string(), st.sampled_from([None, "", "a", "ab", "\0é"])),
    "whole": (pa.int64(), st.none() | st.integers(0, 2)),
    "number": (pa.float64(), st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan])),
    "known": (pa.bool_(), st.none() | st.booleans()),
    "edits": (
        pa.list_(EDIT),
        st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"step": st.sampled_from("ab"), "rule": st.just("r"), "start": st.just(0),
                 "end": st.integers(1, 2), "replacement": st.just("")}
            ),
            max_size=2,
        ),
    ),
}  # fmt: skip
ROW = st.fixed_dictionaries({name: values for name, (_, values) in KINDS.items()})


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({n: pa.array([r[n] for r in rows], t) for n, (t, _) in KINDS.items()})


def plain(value: Any) -> Any:
    """What makes two values the same: the sign of 0 counts, an empty list is none."""
    if isinstance(value, float):
        return repr(value)
    return None if value == [] else value


@given(st.lists(st.tuples(ROW, ROW, st.booleans()), max_size=6))
def test_rows_are_the_same_where_all_their_values_are(pairs: list[Any]) -> None:
    ones = [a for a, _, _ in pairs]
    others = [a if same else b for a, b, same in pairs]
    wanted = [
        all(plain(a[n]) == plain(b[n]) for n in KINDS) for a, b in zip(ones, others, strict=True)
    ]
    assert same_rows(table(ones), table(others)).tolist() == wanted


def test_no_row_is_the_same_in_tables_of_other_columns() -> None:
    one = pa.table({"a": [1, 2]})
    assert not same_rows(one, pa.table({"b": [1, 2]})).any()
    assert not same_rows(one, pa.table({"a": [1.0, 2.0]})).any()


def test_numbers_are_found_and_pieces_merged_in_their_order() -> None:
    at, found = places(np.array([2, 5, 9]), np.array([9, 1, 2, 10]))
    assert found.tolist() == [True, False, True, False]
    assert (at[0], at[2]) == (2, 0)
    assert not places(np.array([], np.int64), np.array([1]))[1].any()
    pieces = [pa.table({NUMBER: n, "x": n}) for n in ([4, 7], [], [1, 5])]
    schema = pa.schema([("x", pa.int64()), (NUMBER, pa.int64())])
    assert merged(schema, pieces)["x"].to_pylist() == [1, 4, 5, 7]
