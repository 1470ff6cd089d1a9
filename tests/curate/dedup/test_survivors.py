"""Survivor policies: which of equal copies stays, and what decides where that is a tie."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from curate.dedup.survivors import POLICIES, checked, column_of, preference

# id: (size, date, source, score, url_md5, part, n)
COPIES = {
    "d": (5, 2020, "x", 0.5, "b", 0, 0),
    "b": (9, 2024, "y", float("nan"), "a", 0, 1),
    "a": (9, None, None, None, None, 0, 2),
    "c": (9, 2024, "it's", 2.0, "a", 1, 0),
    "e": (1, 2020, "y", 2.0, "f", 1, 1),
}
COLUMNS = ("size", "date", "source", "score", "url_md5", "part", "n")


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("longest", "abcde"),
        ("newest", "bcdea"),
        ("first", "dbace"),
        ("best:score", "cedab"),  # neither null nor a number that is none is best
        ("prefer-source:y,x", "bedac"),
        ("prefer-source: x , y", "dbeac"),  # of one source the longest, then the least id
        ("prefer-source:it's", "cabde"),
        ("prefer-source:z", "abcde"),
        ("c4", "abcde"),  # without a URL by the md5 of the id, which begins 0cc1
    ],
)
def test_duplicates_are_preferred_in_the_order_of_the_policy(policy: str, order: str) -> None:
    rows = [{"id": i, **dict(zip(COLUMNS, c, strict=True))} for i, c in COPIES.items()]
    for copies in (rows, rows[::-1]):
        table = pa.Table.from_pylist(copies)
        with duckdb.connect() as db:
            db.register("copies", table)
            query = f"SELECT id FROM copies ORDER BY {preference(policy)}"
            assert "".join(row[0] for row in db.execute(query).fetchall()) == order


@pytest.mark.parametrize("policy", ["Longest", "best", "best:", "prefer-source:", "longest:a", ""])
def test_an_unknown_survivor_policy_is_refused_with_the_known_ones(policy: str) -> None:
    with pytest.raises(ValueError, match=r"known: longest, newest, c4, first, best:<column>"):
        checked(policy)
    assert len(POLICIES) == 6 and column_of("best:a:b") == "a:b" and column_of("longest") is None
