"""CSV and TSV: every row is a document or is reported; columns have the user's names."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.formats.columns import Columns
from curate.formats.delimited import names_in, read_rows
from curate.formats.events import Corrupt, Row, Skipped
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader, plan_reading
from llmcurate.base.errors import UsageError

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")
CELLS = st.lists(st.text(CHARACTERS, max_size=9), min_size=2, max_size=2)


def events(text: str | bytes, limit: int = 1 << 20) -> list[Any]:
    data = text.encode() if isinstance(text, str) else text
    return list(read_rows(io.BytesIO(data), "plain", limit, {"n": "string"}, Columns()))


def texts(found: list[Any]) -> list[str | None]:
    return [event.text for event in found if isinstance(event, Row)]


@given(st.lists(CELLS, max_size=8), st.sampled_from(",\t;|"))
def test_what_a_library_writes_is_read_back(rows: list[list[str]], separator: str) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerows([["text", "n"], *rows])
    found = events(file.getvalue())
    assert texts(found) == [row[0] for row in rows]
    assert [event.extra.get("n", "") for event in found] == [row[1] for row in rows]


def test_a_quoted_field_holds_newlines_and_quotes() -> None:
    (row,) = events('text,n\n"A ""b""\nc, d",1\n')
    assert row.text == 'A "b"\nc, d' and row.extra == {"n": "1"} and row.offset == 7


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ("a,b,c", "3 fields in a row, 2 in the header"),
        ('"a"b,1', "not a row: ',' expected after '\"'"),
        ('"a,1', "not a row: a quote in it is not closed"),
    ],
)
def test_a_bad_row_is_reported_with_its_offset_and_later_rows_are_read(bad: str, what: str) -> None:
    found = events(f"text,n\nfirst,1\n{bad}\nlast,2\nvery last,3\n")
    assert texts(found) == ["first", "last", "very last"]
    assert [e for e in found if isinstance(e, Corrupt)] == [Corrupt(15, what)]


def test_a_quote_that_nothing_closes_holds_no_more_than_the_limit() -> None:
    lines = "".join(f"row {i},{i}\n" for i in range(100))
    found = events(f'text,n\n"open,0\n{lines}', limit=64)
    assert len(texts(found)) == 100


def test_a_line_longer_than_the_limit_is_rejected() -> None:
    found = events("text,n\n" + "x" * 99 + ",1\nshort,2\n", limit=50)
    assert found[0].reject[0] == "line_too_long" and found[1].text == "short"


def test_an_empty_cell_is_null_but_an_empty_text_is_a_text() -> None:
    (row,) = events("id,text,n\n,,\n")
    assert row.id is None and row.text == "" and row.reject is None and not row.extra


def run_reader(path: Path, **settings: Any) -> tuple[list[dict[str, Any]], Any]:
    read = ReadSettings(**settings)
    reader = PartitionReader(plan_reading([str(path)], read), 0, read)
    rows = [row for batch in reader for row in batch.docs.table.to_pylist()]
    return rows, reader.account


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "content"])
def test_a_file_is_known_by_its_name_or_its_header(tmp_path: Path, name: str) -> None:
    data = "\ufeffid\ttext\nx\tone\ny\ttwo, three\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    rows, account = run_reader(tmp_path / name)
    assert [(r["id"], r["text"]) for r in rows] == [("x", "one"), ("y", "two, three")]
    assert account.corrupt.count == 0


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_columns_have_the_names_that_the_user_gives(tmp_path: Path, name: str) -> None:
    row = {"uuid": "x", "content": "A text.", "text": "a title"}
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    else:
        values = ",".join(row), ",".join(row.values())
        text = json.dumps(row) if name == "a.jsonl" else "\n".join(values)
        path.write_text(text + "\n", encoding="utf-8")
    rows, _ = run_reader(path, columns={"text": "content", "id": "uuid"})
    assert (rows[0]["id"], rows[0]["text"], rows[0]["input.text"]) == ("x", "A text.", "a title")


def test_a_file_without_a_text_says_how_to_name_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,body\n1,x\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"text; .* body \(string\): give --text-column body"):
        plan_reading([str(path)], ReadSettings())
    path.write_text("1,A first row without a header\n", encoding="utf-8")
    with pytest.raises(UsageError, match="give --text-column NAME"):
        plan_reading([str(path)], ReadSettings())
    path.write_bytes(b"id,text\r1,x\r")
    with pytest.raises(UsageError, match=r"end with \\r alone: tr"):
        plan_reading([str(path)], ReadSettings())
    path.write_text("text,text\n", encoding="utf-8")
    with pytest.raises(UsageError, match="has the column 'text' twice"):
        plan_reading([str(path)], ReadSettings())


def test_bad_rows_are_in_the_record_of_a_run(bench: Any) -> None:
    (bench.folder / "in").mkdir()
    (bench.folder / "in/a.csv").write_text('text\nfine\n"a"b\n', encoding="utf-8")
    (bench.folder / "in/b.csv").write_text("name,price\nx,1\n", encoding="utf-8")
    result = bench.command("filter", "document_length", "in", "--min", "1", "-o", "o", "--json")
    counts = json.loads(result.stdout.splitlines()[-1])
    assert (counts["read"], counts["corrupt"]) == (1, 1)
    assert "in/b.csv: no column text; the files have" in result.stderr
    (line,) = (bench.folder / "o/corrupt.jsonl").read_text().splitlines()
    assert json.loads(line)["offset"] == 10


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (b"a,b;c;d", ["a,b", "c", "d"]),
        (b"a,b;c", ["a", "b;c"]),  # of as many the first of tab, comma, semicolon and bar
        (b"a;b|c", ["a", "b|c"]),
        (b"a\tb,c", ["a", "b,c"]),
        (b"\xef\xbb\xbftext\r", ["text"]),
        (b'a,"b', []),
        (b"a,a", []),
    ],
)
def test_the_header_tells_what_separates_fields(header: bytes, names: list[str]) -> None:
    assert names_in(header + b"\nx") == names


def table(*rows: str) -> str:
    return "id\ttext\n" + "".join(f"{n}\t{row}\n" for n, row in enumerate(rows))


PLAIN = ['"Hello," she said.', 'He said "no".', '"Yes', 'so""called', '"No."', "last"]


def test_marks_of_a_table_without_quoting_are_characters_of_its_fields() -> None:
    """Sources: IANA, text/tab-separated-values; Tatoeba, OPUS, Wikidata."""
    found = events(table(*PLAIN))
    assert texts(found) == PLAIN and len(found) == len(PLAIN)
    unquoted = csv.reader(io.StringIO(table(*PLAIN)), delimiter="\t", quoting=csv.QUOTE_NONE)
    assert [row[1] for row in unquoted][1:] == PLAIN


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "rows", [PLAIN, ["a\tb", "c"], ["of\ntwo lines", "of\n\nthree", "one"], ['"', '""'], ["plain"]]
)
def test_a_table_that_was_written_with_quotes_is_read_with_them(
    rows: list[str], line_end: str, quoting: Any
) -> None:
    """The files are as pandas' to_csv(sep="\t") and Python's csv write them."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, "excel-tab", quoting=quoting, lineterminator=line_end)
    writer.writerows([["id", "text"], *enumerate(rows)])
    assert texts(events(file.getvalue())) == rows


def test_whole_quotes_alone_do_not_make_a_table_quoted() -> None:
    assert texts(events(table('"No."', "one", '"Yes."'))) == ['"No."', "one", '"Yes."']


@pytest.mark.parametrize(
    ("quote", "expected"), [("none", ['"a"', '"b ""c"""']), ("double", ["a", 'b "c"'])]
)
@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_setting_says_whether_fields_are_quoted(
    tmp_path: Path, separator: str, quote: str, expected: list[str]
) -> None:
    path = tmp_path / "rows.txt.csv"
    path.write_text(f'id{separator}text\n1{separator}"a"\n2{separator}"b ""c"""\n')
    rows, _ = run_reader(path, quote=quote)
    assert [row["text"] for row in rows] == expected


@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_bad_row_does_not_swallow_the_rows_after_it(separator: str) -> None:
    """Its quotation mark is closed by one in another row."""
    rows = ["id,text", '1,"Yes', "2,two", '3,"say"', '4,"four ""4"""', '5,"of\ntwo"', "6,six"]
    found = events("\n".join(rows).replace(",", separator) + "\n")
    bad = [(e.offset, e.count) for e in found if isinstance(e, Corrupt)]
    assert bad == [(8, 1)]
    assert texts(found) == ["two", "say", 'four "4"', "of\ntwo", "six"]


@pytest.mark.parametrize("gap", ["\ufeff", "\0" * 9, "\0" * 5000, "\0" * 9 + "\ufeff"])
def test_joined_tables_are_all_read_without_their_headers(gap: str) -> None:
    file = "id,text\n1,one\n2,two\n"
    found = events(f"{gap}{file}{gap}{file}{gap}")
    assert texts(found) == ["one", "two"] * 2
    assert [e.kind for e in found if isinstance(e, Skipped)] == ["header"]
    nuls = gap.count("\0")
    damage = [e.what for e in found if isinstance(e, Corrupt)]
    assert damage == [f"{nuls} NUL bytes"] * (3 if nuls else 0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read_as_if_it_were_utf_8(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.tsv"
    path.write_bytes(table("Ünï", '"and" more').encode(encoding))
    rows, account = run_reader(path)
    assert [row["text"] for row in rows] == ["Ünï", '"and" more'] and not account.corrupt.count
