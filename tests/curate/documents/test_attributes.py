"""Scores and edits as one struct in files: packed, unpacked, and read by pandas, polars, DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.documents.attributes import (
    DocumentsFile,
    chosen,
    flat,
    is_attribute,
    is_packed,
    pack,
    read_schema,
    source_sql,
    unpack,
)
from curate.documents.edits import EDIT
from llmcurate.base.errors import UsageError

EDITS = [[("c4", "line", 0, 4, None)], None]
TABLE = pa.table(
    {
        "id": ["a", "b"],
        "text": ["river", "mill"],
        "meta.own": [1, 2],
        "c4.lines": pa.chunked_array([[3.0], [None]]),
        "edits": pa.array(EDITS, pa.list_(EDIT)),
        "reasons": [0, 1],
    }
)
PACKED = pack(TABLE, {"meta.own"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(PACKED, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_scores_and_edits_are_one_column_before_the_reasons() -> None:
    assert PACKED.column_names == ["id", "text", "meta.own", "attributes", "reasons"]
    assert unpack(PACKED).equals(TABLE) and flat(PACKED.schema).equals(TABLE.schema)
    assert [f.name for f in flat(PACKED.schema) if is_attribute(f)] == ["c4.lines", "edits"]


def test_a_file_has_its_columns_by_their_names(path: Path) -> None:
    with DocumentsFile(path) as file:
        assert file.read().equals(TABLE)
        assert file.read(["c4.lines", "id"]).to_pydict() == {
            "id": ["a", "b"],
            "c4.lines": [3, None],
        }
        (batch,) = file.iter_batches(columns=["edits"])
    assert batch.schema.names == ["edits"] and read_schema(path).equals(TABLE.schema)


@pytest.mark.parametrize(
    "column",
    [[{"a.b": 1}], [{"edits": None, "plain": 1}], ['{"edits": []}'], [{"toxicity": 0.1}]],
)
def test_a_column_of_that_name_that_is_not_ours_stays(column: list[object]) -> None:
    table = pa.table({"id": ["a"], "attributes": column})
    assert not is_packed(table.schema) and unpack(table) is table


def test_a_file_that_polars_or_duckdb_rewrote_is_still_ours(path: Path) -> None:
    import polars

    polars.read_parquet(path).filter(polars.col("id") == "a").write_parquet(path)
    assert DocumentsFile(path).read(["c4.lines"])["c4.lines"].to_pylist() == [3]
    duckdb.sql(f"COPY (FROM '{path}') TO '{path.with_name('b.parquet')}'")
    assert is_packed(pq.read_schema(path.with_name("b.parquet")))


def test_other_libraries_reach_a_score_by_its_name(path: Path) -> None:
    import pandas
    import polars

    frame = pandas.json_normalize(pandas.read_parquet(path)["attributes"].tolist())
    assert frame["c4.lines"][0] == 3
    assert polars.read_parquet(path).unnest("attributes")["c4.lines"].to_list() == [3, None]
    query = f"SELECT attributes['c4.lines'], attributes.\"c4.lines\" FROM '{path}'"
    assert duckdb.sql(query).fetchall() == [(3, 3), (None, None)]
    table = pq.ParquetFile(path).read(columns=["attributes.c4.lines"])
    assert table["attributes"].to_pylist()[0] == {"c4.lines": 3}


def test_a_query_sees_flat_columns_of_files_of_both_kinds(path: Path) -> None:
    before = path.with_name("before.parquet")
    pq.write_table(TABLE, before)
    for paths in ([path], [before, path]):
        found = duckdb.sql(
            f'SELECT sum("c4.lines"), count(url) FROM {source_sql(paths, "", ["url"])}'
        )
        assert found.fetchall() == [(3 * len(paths), 0)]


def test_columns_can_be_selected_and_unknown_ones_are_refused() -> None:
    assert chosen(PACKED, ["attributes"]).column_names == ["id", "text", "attributes"]
    assert chosen(PACKED, ["-attributes"]).column_names == ["id", "text", "meta.own", "reasons"]
    with pytest.raises(UsageError, match="columns: no column 'titel'; the columns are id, text"):
        chosen(PACKED, ["titel"])
