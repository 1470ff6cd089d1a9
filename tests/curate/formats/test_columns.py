"""The kinds of columns for values, at the limits of 64-bit integers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.formats.columns import Columns, fits, kind_of
from curate.formats.jsonl import missing_text


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


@pytest.mark.parametrize(
    ("names", "likely"),
    [
        (["ID", "Text"], "Text"), (["Url", "CONTENT", "Notes"], "CONTENT"), (["Notes"], "Notes"),
        (["ID", "URL"], None),
    ],
)  # fmt: skip
def test_the_likeliest_column_of_text_is_advised(names: list[str], likely: str | None) -> None:
    advice = Columns().missing(dict.fromkeys(names, "string")).partition("--text-column ")[2]
    assert advice == (likely or "")


def test_a_column_of_names_or_digests_is_not_advised_as_text() -> None:
    names = {"path": "a/b.gz", "sha1": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}
    cases = (({}, "NAME"), ({"Notes": "Two words"}, "Notes"), ({"Story": "x"}, "Story"))
    for more, advised in cases:
        advice = missing_text([{**names, **more}], Columns())
        assert advice and advice.partition("--text-column ")[2] == advised


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_path_leads_to_the_text_in_a_struct_whose_rest_is_kept(bench, ending):
    rows = [{"doc": {"text": "One.", "about": {"n": 7}}}, {"doc": None}]
    source = bench.jsonl("a.jsonl", rows)
    if ending == "parquet":
        source = bench.folder / "a.parquet"
        pq.write_table(pa.Table.from_pylist(rows), source)
    bench.run(["dedup_exact"], source, read={"columns": {"text": "doc.text", "id": "doc.about.n"}})
    (row,) = bench.rows("out")
    assert (row["id"], row["text"]) == ("7", "One.")
    assert "One." not in str(row["doc"]) and "7" in str(row["doc"])
    assert [r["rule"] for r in bench.rows("out", "rejected")] == ["no_text"]


def test_texts_in_structs_are_advised() -> None:
    assert "give --text-column doc.text" in (
        missing_text([{"doc": {"text": "a b"}}], Columns()) or ""
    )
