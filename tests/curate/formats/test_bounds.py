"""Memory and time of readers are bounded by settings and by the size of the input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.formats import delimited, http, inputs, jsonl, parquet
from curate.formats.events import Corrupt, OmittedValues, Portion
from curate.formats.parquet import chunks
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import Account, PartitionReader, plan_reading
from llmcurate.base.errors import UsageError
from tests.curate.doubling import grows_linearly


def batches(path: Path, **settings: Any) -> tuple[list[pa.Table], Account]:
    read = ReadSettings(**settings)
    reader = PartitionReader(plan_reading([str(path)], read), 0, read)
    return [batch.docs.table for batch in reader], reader.account


def write(folder: Path, kind: str, columns: dict[str, list[Any]]) -> Path:
    path = folder / f"in.{kind}"
    table = pa.table(columns)
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


# -- Carried columns -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_batch_ends_by_the_bytes_of_all_its_columns(tmp_path: Path, kind: str) -> None:
    pages = [f"{i}" * 50_000 for i in range(10, 40)]
    path = write(tmp_path, kind, {"text": ["a"] * 30, "html": pages})
    tables, account = batches(path, batch_bytes=300_000)
    assert [html for table in tables for html in table["html"].to_pylist()] == pages
    assert max(len(table) for table in tables) <= 3
    assert account.bytes_in == 30  # of texts alone


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_largest_carried_values_of_a_document_are_left_out_and_counted(
    tmp_path: Path, kind: str
) -> None:
    columns = {
        "text": ["long " * 1000, "b", "c"],
        "html": ["x" * 2000, "y" * 2000, "z" * 900],
        "more": ["m", "n" * 2000, "o" * 10],
        "tags": [["t"], ["u"], ["v"]],
    }
    path = write(tmp_path, kind, columns)
    tables, account = batches(path, max_carried_bytes=1000)
    rows = pa.concat_tables(tables).to_pylist()
    assert [row["html"] for row in rows] == [None, None, "z" * 900]
    assert [row["more"] for row in rows] == ["m", None, "o" * 10]
    assert all(row["tags"] for row in rows)
    assert rows[0]["text"] == "long " * 1000
    assert account.left_out == {"html": 2, "more": 1}


# -- Damage --------------------------------------------------------------------------------


def test_the_first_hundred_bad_lines_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n' + "{bad}\n" * 250)
    _, account = batches(path)
    entries = account.corrupt.places()
    assert account.corrupt.count == 250
    assert [entry.count for entry in entries] == [1] * 100 + [150]
    assert entries[100].offset == 14 + 100 * 6


def test_damage_within_one_long_line_is_counted_and_not_held(tmp_path: Path) -> None:
    whole = gzip.compress(b"a", mtime=0)
    damaged = bytearray(whole)
    damaged[-5] ^= 1  # of its checksum
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes((bytes(damaged) + whole) * 300)
    plain = Portion(str(path), path.name, "jsonl", "gzip")
    events = list(jsonl.read(plain))
    assert len(events) == 101
    assert sum(event.count for event in events if isinstance(event, Corrupt)) == 301


# -- Pages of parquet ----------------------------------------------------------------------


def portion(path: Path, **limits: int) -> Portion:
    return Portion(str(path), path.name, "parquet", **limits)  # type: ignore[arg-type]


def test_a_value_that_fills_every_row_from_a_dictionary_is_read_a_few_rows_at_a_time(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.parquet"
    table = pa.table({"text": ["a"] * 60, "html": ["x" * 200_000] * 60})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 2000
    tables = list(parquet.read(portion(path, bytes=400_000, pages=1 << 20)))
    assert pa.concat_tables(tables).equals(table)
    assert max(t.nbytes for t in tables) < 1_000_000


def test_a_carried_column_whose_page_is_too_large_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    table = pa.table({"text": ["a"] * 9, "page.html": ["x" * 200_000] * 9, "n": [1] * 9})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    left, rows = parquet.read(portion(path, pages=1 << 20))
    assert left == OmittedValues("page.html", 9)
    assert rows.equals(table.drop_columns(["page.html"]))


def test_texts_whose_pages_are_too_large_are_damage_and_other_row_groups_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.parquet"
    table = pa.table({"text": ["x" * 200_000] * 9 + ["small"] * 9})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=9)
    damage, rows = parquet.read(portion(path, pages=1 << 20))
    assert isinstance(damage, Corrupt)
    assert "row group 0" in damage.what and "1.8" in damage.what and "smaller" in damage.what
    assert rows.equals(table.slice(9))


def test_a_page_header_that_cannot_be_read_is_damage_by_column(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["a b"] * 9}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    path.write_bytes(bytes(data))
    (damage,) = parquet.read(portion(path))
    assert isinstance(damage, Corrupt) and "column `text`: no page at byte 4" in damage.what


def test_rows_before_a_damaged_page_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    texts = [f"{i} " * 100 for i in range(40)]
    table = pa.table({"text": texts})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=20)
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    stop = data.index(b"\x28\xb5\x2f\xfd", start)  # the page's zstd frame
    data[stop : stop + 8] = b"\0" * 8
    path.write_bytes(bytes(data))
    tables, account = batches(path)
    assert pa.concat_tables(tables)["text"].to_pylist() == texts[:20]
    assert account.corrupt.count == 1


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_the_pages_of_a_column_are_recognised_by_their_headers(
    tmp_path: Path, version: str, dictionary: bool
) -> None:
    path = tmp_path / "in.parquet"
    texts = [f"{i:05d}" * 200 for i in range(3000)]  # 1,000 bytes each
    table = pa.table({"text": texts, "tags": [["a", "b"]] * 3000})
    pq.write_table(
        table, path, data_page_version=version, use_dictionary=dictionary, data_page_size=1 << 16
    )
    with path.open("rb") as file:
        text, tags = chunks(file, pq.ParquetFile(path).metadata.row_group(0))
    assert (text.name, tags.name) == ("text", "tags")
    # A page ends behind 1,024 values at the earliest; a dictionary is held twice.
    assert 1_000_000 < text.memory < 6_000_000
    assert (text.repeated > 1_000_000) == dictionary
    assert 900 < text.row < 1100 or dictionary


# -- Time ----------------------------------------------------------------------------------


def test_a_gzip_body_of_empty_members_takes_linear_time() -> None:
    empty = gzip.compress(b"")
    assert http._gzip(empty * 99 + gzip.compress(b"end"), 1 << 20) == (b"end", None)
    assert grows_linearly(lambda d: http._gzip(d, 9), lambda n: empty * (n // 20), 60_000)


def test_blanks_before_a_charset_take_linear_time() -> None:
    assert http.content_type("text/html; charset = ' UTF-8'") == ("text/html", "utf-8")
    assert grows_linearly(http.content_type, lambda n: "text/html; charset=" + " " * n, 2_000)


def test_a_header_of_many_columns_takes_linear_time() -> None:
    def header(size: int) -> bytes:
        return ",".join(f"c{i}" for i in range(size)).encode()

    assert delimited.names_in(b"text,a,text") == []
    assert grows_linearly(delimited.names_in, header, 2_000)


def test_a_chunked_body_of_tiny_chunks_is_joined() -> None:
    head = http.parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert head is not None
    body = http.decode_body(head, b"2\r\nab\r\n" * 500 + b"0\r\n\r\n", 1 << 20)
    assert (body.status, body.data) == ("ok", b"ab" * 500)


def test_a_table_of_very_many_columns_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "MOST_STORED", 9)
    columns = {"text": ["a"], **{f"c{n}": [n] for n in range(10)}}
    with pytest.raises(UsageError, match=r"in\.parquet: it has 10 columns to carry along"):
        batches(write(tmp_path, "parquet", columns))


def test_columns_that_memory_has_no_room_for_are_chosen_in_linear_time(tmp_path: Path) -> None:
    def table(size: int) -> Path:
        return write(tmp_path, "parquet", {"text": ["a"], **{f"c{n}": [n] for n in range(size)}})

    def read(path: Path) -> None:
        events = list(parquet.read(portion(path, pages=1)))
        assert isinstance(events[-1], Corrupt)

    assert grows_linearly(read, table, 300)
