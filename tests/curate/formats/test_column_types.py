"""Types of columns that differ by file, in any order of files; compared with pyarrow and DuckDB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.formats.column_types import (
    cast_to,
    common_kind,
    common_type,
    json_texts,
    kind_of_type,
)
from curate.formats.columns import SameName
from curate.formats.inputs import plan_inputs
from curate.formats.parquet import read_schema
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader

LEAVES = [
    pa.null(), pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(),
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.date32(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "Europe/Berlin"), pa.decimal128(5, 2), pa.decimal128(38, 0),
]  # fmt: skip
TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(pa.large_list)
        | st.dictionaries(st.sampled_from("abc"), inner).map(lambda f: pa.struct(list(f.items())))
    ),
    max_leaves=4,
)


@given(st.lists(TYPES, min_size=1, max_size=4))
def test_the_order_of_files_does_not_matter(types: list[pa.DataType]) -> None:
    kinds = [kind_of_type(kind) for kind in types]
    assert len({reduce(common_kind, order, None) for order in permutations(kinds)}) == 1
    both = reduce(common_kind, kinds, None)
    assert all(common_kind(both, kind) == both for kind in kinds)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int64()), ("y", pa.string())])),
        (pa.list_(pa.null()), pa.list_(pa.string())),
        (pa.list_(pa.struct([("x", pa.null())])), pa.list_(pa.struct([("x", pa.bool_())]))),
        (pa.null(), pa.map_(pa.string(), pa.int64())),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("ns", "UTC")),
        (pa.decimal128(5, 2), pa.decimal128(10, 4)),
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.float64()),
    ],
)
def test_the_joined_type_of_two_columns_is_pyarrows(a: pa.DataType, b: pa.DataType) -> None:
    schemas = [pa.schema([("x", kind)]) for kind in (a, b)]
    theirs = pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    assert common_type(a, b) == common_type(b, a) == theirs


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.timestamp("s"), pa.timestamp("s", "UTC")),  # nobody knows the zone
        (pa.string(), pa.binary()),
        (pa.int64(), pa.uint64()),
        (pa.bool_(), pa.int64()),
        (pa.date32(), pa.timestamp("s")),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.string())])),
        (pa.list_(pa.int64()), pa.int64()),
    ],
)
def test_types_that_cannot_be_joined_without_loss_become_json(
    a: pa.DataType, b: pa.DataType
) -> None:
    assert common_kind(kind_of_type(a), kind_of_type(b)) == "json"


def read(folder: Path, columns: Sequence[pa.Array | list[Any]]) -> tuple[pa.Table, dict[str, int]]:
    """Read a folder of one parquet file per column; return the rows and the number of misfits."""
    for number, values in enumerate(columns):
        table = pa.table({"text": [f"{number}"] * len(values), "it": values})
        pq.write_table(table, folder / f"{number}.parquet")
    plan = plan_inputs([str(folder)])
    reader = PartitionReader(plan, 0, ReadSettings())
    tables = [batch.docs.table for batch in reader]
    return pa.concat_tables(tables), dict(reader.account.misfits)


def test_times_of_several_zones_are_in_utc() -> None:
    kinds = (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ms", "Asia/Tokyo"))
    assert common_type(*kinds) == pa.timestamp("ms", "UTC")


def test_structs_have_the_fields_of_all_files(tmp_path: Path) -> None:
    table, misfits = read(tmp_path, [[{"b": 1}], [{"b": 2, "a": [{"c": "x"}]}], [None]])
    files = f"{tmp_path}/*.parquet"
    query = f"SELECT it FROM read_parquet('{files}', union_by_name = true) ORDER BY filename"
    theirs = [row[0] for row in duckdb.sql(query).fetchall()]
    assert table["it"].to_pylist() == theirs and not misfits
    assert theirs == [{"b": 1, "a": None}, {"b": 2, "a": [{"c": "x"}]}, None]


@pytest.mark.parametrize("order", [1, -1])
def test_types_that_differ_become_json_text_of_the_same_values(tmp_path: Path, order: int) -> None:
    files = [[{"a": 1.5}], ["x"], [[1, None]], [Decimal("1.50")], [b"\xff"], [True], [float("nan")]]
    texts = ['{"a": 1.5}', '"x"', "[1, null]", '"1.50"', '"ff"', "true", None]
    table, misfits = read(tmp_path, files[::order])
    assert table["it"].to_pylist() == texts[::order] and not misfits


def test_text_that_is_no_utf_8_is_mended_in_any_column(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    table, _ = read(tmp_path, [broken, [1]])
    assert table["it"].to_pylist() == ['"a\ufffd"', "1"]


def test_integers_that_no_float_can_hold_go_to_extra(tmp_path: Path) -> None:
    table, misfits = read(tmp_path, [[1.5], [2, 2**53 + 1, None]])
    assert table["it"].to_pylist() == [1.5, 2.0, None, None]
    assert table["extra"].to_pylist() == [None, None, '{"it": 9007199254740993}', None]
    assert misfits == {"it": 1}


def test_a_time_is_iso_8601_in_any_year_and_to_the_nanosecond() -> None:
    for kind, value, text in (
        (pa.timestamp("ns"), 10**18 + 7, "2001-09-09T01:46:40.000000007"),
        (pa.timestamp("s", "UTC"), 253402300800, "10000-01-01T00:00:00Z"),
        (pa.date32(), 5, "1970-01-06"),
    ):
        column = pa.chunked_array([pa.array([value], kind)])
        assert json.loads(json_texts(column)[0].as_py()) == text


def test_a_value_fits_a_narrower_type_where_nothing_of_it_is_lost() -> None:
    narrow = pa.struct([("a", pa.float32())])
    wide = pa.struct([("a", pa.float64()), ("b", pa.string())])
    rows = [{"a": 0.5, "b": None}, {"a": 0.1, "b": None}, {"a": 0.5, "b": "x"}, None]
    column, misfits = cast_to(pa.chunked_array([pa.array(rows, wide)]), narrow)
    assert column.to_pylist() == [{"a": 0.5}, None, None, None] and misfits == [1, 2]
    column, misfits = cast_to(pa.chunked_array([[1.0, 1.5, None]]), pa.int64())
    assert column.to_pylist() == [1, None, None] and misfits == [1]


def test_two_columns_of_one_name_are_named_with_their_file(tmp_path: Path) -> None:
    table = pa.table([["a"], [1], [2], [3]], names=["text", "Score", "score", "score"])
    pq.write_table(table, tmp_path / "b.parquet")
    message = r"b\.parquet: its schema has the column 'score' twice"
    with pytest.raises(SameName, match=message):
        read_schema(str(tmp_path / "b.parquet"))
    with pytest.raises(SameName, match=message):
        plan_inputs([str(tmp_path)])
    pq.write_table(table.select([0, 1, 2]), tmp_path / "b.parquet")
    assert [*plan_inputs([str(tmp_path)]).columns] == ["Score", "score"]


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (pa.array([1.0, float("nan"), 2.5]), ["1", "0.parquet#1", "2.5"]),
        (pa.array([7, None, 9], pa.uint16()), ["7", "0.parquet#1", "9"]),
        (pa.array([b"\0" * 15 + b"\x05", None], pa.binary(16)), ["0" * 31 + "5", "0.parquet#1"]),
        (pa.array([b"\xff\x00", b"abc"], pa.binary()), ["ff00", "abc"]),
    ],
)
def test_ids_of_any_type_are_text(tmp_path: Path, ids: pa.Array, texts: list[str]) -> None:
    pq.write_table(pa.table({"id": ids, "text": ["a"] * len(ids)}), tmp_path / "0.parquet")
    (batch,) = PartitionReader(plan_inputs([str(tmp_path)]), 0, ReadSettings())
    assert batch.docs.table["id"].to_pylist() == texts


def test_a_uuid_is_written_as_text(tmp_path: Path) -> None:
    text = "0123e4e0-1111-4222-8333-444455556666"
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT '{text}'::UUID id, 'a' AS text) TO '{path}'")
    (batch,) = PartitionReader(plan_inputs([str(path)]), 0, ReadSettings())
    assert batch.docs.table["id"].to_pylist() == [text]


def test_ids_of_jsonl_are_text_too(tmp_path: Path) -> None:
    lines = ['{"id": 1.0, "text": "a"}', '{"id": NaN, "text": "b"}', '{"id": 2, "text": "c"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (batch,) = PartitionReader(plan_inputs([str(tmp_path)]), 0, ReadSettings())
    assert batch.docs.table["id"].to_pylist() == ["1", "a.jsonl#1", "2"]
