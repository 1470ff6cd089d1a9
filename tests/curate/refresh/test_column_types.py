"""A column keeps the type that it has in the corpus, whatever later inputs bring: every part has
one schema, and no value is lost."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.curate.refresh.growing import Home

STEPS = [{"dedup_exact": {}}]
# Values of a column by week, what stands in the column then, and in `extra`.
WEEKS: list[tuple[list[Any], list[Any], list[Any]]] = [
    ([1, None], [1, None], [None, None]),
    ([1.5, 2.0], [None, 2], [1.5, None]),
    (["n/a", "3"], [None, None], ["n/a", "3"]),
    ([{"v": 1}, None], [None, None], [{"v": 1}, None]),
    ([[b"\xff"], []], [None, None], [["ff"], []]),
]


@pytest.fixture
def grown(bench: Any) -> Home:
    """A HOME after a week a file, each with another type of its column."""
    home = Home(bench, STEPS)
    (bench.folder / "in").mkdir()
    for week, (values, _, extra) in enumerate(WEEKS):
        texts = [f"Text {week} {row}" for row in range(len(values))]
        table = pa.table({"text": texts, "score": values})
        pq.write_table(table, bench.folder / "in" / f"{week}.parquet")
        done = home.refresh(bench.folder / "in")
        misfits = sum(value is not None for value in extra)
        assert (done.totals.kept, done.totals.misfits) == (2, misfits)
        assert (f"{misfits} value" in done.line()) == bool(misfits)
    return home


def test_a_value_of_another_type_is_in_extra(grown: Home) -> None:
    rows = grown.rows()
    assert [row["score"] for row in rows] == [v for _, column, _ in WEEKS for v in column]
    kept = [json.loads(row["extra"])["score"] if row["extra"] else None for row in rows]
    assert kept == [value for _, _, extra in WEEKS for value in extra]


def test_names_with_a_dot_and_no_name_stay_columns_of_their_own(bench: Any) -> None:
    home = Home(bench, STEPS)
    home.refresh(bench.jsonl("1.jsonl", [{"text": "One.", "meta.lang": "x", "": "5"}]))
    for week in "23":
        home.refresh(bench.jsonl(f"{week}.jsonl", [{"text": f"Week {week}."}]))
    assert [(row["meta.lang"], row["input."]) for row in home.rows()] == [("x", "5")] + [
        (None, None)
    ] * 2
    assert len({str(pq.read_schema(part)) for part in home.folder().glob("*.parquet")}) == 1


def test_a_snapshot_is_one_table_to_its_readers(grown: Home) -> None:
    import datasets
    import pandas

    folder = grown.folder()
    parts = sorted(folder.glob("*.parquet"))
    assert len({str(pq.read_schema(part)) for part in parts}) == 1
    scores = [row["score"] for row in grown.rows()]
    files = f"{folder}/*.parquet"
    with duckdb.connect() as db:
        query = f"SELECT score FROM read_parquet('{files}') ORDER BY filename, file_row_number"
        assert [row[0] for row in db.sql(query).fetchall()] == scores
    assert pq.read_table(folder)["score"].to_pylist() == scores
    assert len(pandas.read_parquet(folder)) == len(scores)
    cache = str(grown.path / "cache")
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=cache)
    assert loaded["train"]["score"][:] == scores


def test_jsonl_after_tables_and_tables_after_jsonl(bench: Any) -> None:
    home = Home(bench, STEPS)
    home.refresh(bench.jsonl("a.jsonl", [{"text": "a", "n": 1, "s": "x"}]))
    table = pa.table({"text": ["b"], "n": ["one"], "s": [b"\xff"], "extra": ['{"k": 1}']})
    pq.write_table(table, bench.folder / "b.parquet")
    assert home.refresh(bench.folder / "b.parquet").totals.misfits == 2
    assert home.refresh(bench.jsonl("c.jsonl", [{"text": "c", "n": [1]}])).totals.misfits == 1
    extras = [row["extra"] for row in home.rows()]
    assert extras == [None, '{"k": 1, "n": "one", "s": "ff"}', '{"n": [1]}']


def test_a_table_that_no_plan_can_have_is_left_out_and_named(bench: Any) -> None:
    home = Home(bench, STEPS)
    (bench.folder / "in").mkdir()
    (bench.folder / "in/c.csv").write_text("text,n,n\na,1,2\n", encoding="utf-8")
    many = ["text", *(f"c{n}" for n in range(10_001))]
    (bench.folder / "in/d.csv").write_text(",".join(many) + "\n", encoding="utf-8")
    twice = pa.table([["a"], [1], [2]], names=["text", "score", "score"])
    pq.write_table(twice, bench.folder / "in" / "a.parquet")
    pq.write_table(twice.select([0, 1]), bench.folder / "in" / "b.parquet")
    for inputs in (1, 0):
        done = home.refresh(bench.folder / "in")
        assert done.inputs == inputs
        assert "a.parquet (its schema has the column 'score' twice)" in done.line()
        assert "c.csv (its header has the column 'n' twice)" in done.line()
        assert "d.csv (it has 10,001 columns to carry along" in done.line()
