"""Reading JSONL, parquet and folders: nothing is lost or invented, and damage is reported."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.formats import compression, jsonl
from curate.formats.events import Corrupt, Row
from curate.formats.inputs import plan_inputs
from curate.formats.read_settings import ReadSettings
from curate.formats.reading import PartitionReader
from llmcurate.base.errors import UsageError

UTC = dt.timezone.utc


class Read:
    """All documents and damage from the partitions of an input."""

    def __init__(self, *inputs: Path | str, **values: Any) -> None:
        self.settings = ReadSettings(**values)
        self.plan = plan_inputs([str(i) for i in inputs], self.settings.partition_bytes)
        self.rows: list[dict[str, Any]] = []
        self.refused: list[tuple[str, str]] = []
        self.corrupt: list[dict[str, Any]] = []
        self.bytes_in = 0
        for part in range(len(self.plan.partitions)):
            reader = PartitionReader(self.plan, part, self.settings)
            for batch in reader:
                batch.docs.table.validate(full=True)
                self.rows += batch.docs.table.to_pylist()
                if batch.refused is not None:
                    for row in batch.refused.split()[1].to_pylist():
                        self.refused.append((row["id"], row["rule"]))
            self.corrupt += map(asdict, reader.account.corrupt.places())
            self.bytes_in += reader.account.bytes_in

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


# -- JSON lines ----------------------------------------------------------------------------


def test_broken_lines_are_corrupt_with_file_and_offset(bench):
    good = '{"text": "one"}'
    path = bench.jsonl("a.jsonl", [good, "{broken", "[1]", good])
    read = Read(path)
    assert read.column("text") == ["one", "one"]
    assert [(c["file"], c["offset"]) for c in read.corrupt] == [(str(path), 16), (str(path), 24)]
    assert "JSON" in read.corrupt[0]["what"] and "list" in read.corrupt[1]["what"]


BAD = "größer, weiß, für: \udcff, \udcfe\udcff, and a written \ufffd"
FILES = {
    "a.txt": (f"{BAD}\n", "utf-8", 3),
    "a.csv": (f'id,text\n1,"fine"\n2,"{BAD}\n{BAD}"\n', "utf-8", 6),
    "a.tsv": (f"id\ttext\n1\t{BAD}\n2\t{BAD}\n", "utf-8", 6),
    "a.jsonl": (f'{{"text": "{BAD}"}}\n' * 2, "utf-8", 6),
    "a.json": (f'[{{"text": "{BAD} \\ufffd"}},\n {{"text": "fine"}}]', "utf-8", 3),
    "wide.csv": ("text\n" + ("half of a pair in a long line " * 9 + "\ud83d\n") * 9, "utf-16le", 9),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_replaced_bytes_has_one_line_on_them(tmp_path: Path, name: str) -> None:
    text, encoding, replaced = FILES[name]
    errors = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
    (tmp_path / name).write_bytes(text.encode(encoding, errors))
    (place,) = Read(tmp_path / name).corrupt
    assert place["what"].startswith(f"{replaced} replacement character")
    assert place["what"].endswith(f"invalid in {encoding}")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_replaced_bytes_of_parquet_are_counted(tmp_path: Path, kind: pa.DataType) -> None:
    values = pa.array([b"fine", b"bad \xff", None, "\ufffd".encode()], kind)
    pq.write_table(pa.table({"text": values, "name": values}), tmp_path / "a.parquet")
    (place,) = Read(tmp_path / "a.parquet").corrupt
    assert place["what"].startswith("1 replacement character (U+FFFD)")


def test_blank_lines_crlf_and_a_missing_last_newline_make_no_difference(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text":"one"}\r\n\r\n  \n{"text":"two"}\n\n{"text":"three"}')
    read = Read(path)
    assert read.column("text") == ["one", "two", "three"]
    assert read.column("id") == ["a.jsonl#0", "a.jsonl#1", "a.jsonl#2"]
    assert read.corrupt == []


def test_a_byte_order_mark_is_no_damage(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text":"one"}\n')
    assert Read(path).column("text") == ["one"]


def test_invalid_unicode_becomes_the_replacement_character(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text":"half \\ud83d"}\n{"text":"whole \\ud83d\\ude00"}\n{"text":"bad \xff \xc3\xa4"}\n'
        b'{"text":"escaped \\u0000"}\n{"text":"raw \x00"}\n'
    )
    read = Read(path)
    texts = ["half \ufffd", "whole \U0001f600", "bad \ufffd \u00e4", "escaped \x00", "raw \ufffd"]
    assert read.column("text") == texts
    (place,) = read.corrupt
    lost = "3 replacement characters (U+FFFD) for bytes that are invalid in utf-8"
    assert (place["file"], place["offset"], place["what"]) == (str(path), 0, lost)


def test_bytes_in_are_those_of_utf8_whatever_the_format(bench):
    texts = ["plain", "ภาษาไทย", "naïve 🙂", "\ud800 alone"]
    utf8 = sum(len(text.encode("utf-8", "replace")) for text in texts[:3])
    lines = bench.jsonl("a.jsonl", [{"text": text} for text in texts[:3]])
    columns = bench.folder / "a.parquet"
    pq.write_table(pa.table({"text": texts[:3]}), columns)
    assert Read(lines).bytes_in == Read(columns).bytes_in == utf8
    half = bench.jsonl("half.jsonl", [json.dumps({"text": texts[3]})])
    assert Read(half).bytes_in == len("\ufffd alone".encode())


def test_a_line_beyond_the_limit_is_rejected_by_size_and_never_held(tmp_path):
    class Watched(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.largest = max(self.largest, len(data))
            return data

    long = json.dumps({"text": "x" * 5_000_000}).encode()
    file = Watched(b'{"text":"a"}\n' + long + b'\n{"text":"b"}\n')
    events = list(jsonl.read_lines(file, "plain", 0, None, 1000, {}))
    assert [getattr(e, "text", None) for e in events] == ["a", None, "b"]
    row = events[1]
    assert isinstance(row, Row) and row.reject is not None
    assert row.reject[:3] == ("line_too_long", len(long), 1000)
    assert file.largest <= 1 << 20


def test_records_without_text_are_rejected_and_keep_what_they_have(bench):
    path = bench.jsonl("a.jsonl", [{"id": "a", "title": "t"}, {"text": 5}, {"text": None}])
    read = Read(path)
    assert read.refused == [("a", "no_text"), ("a.jsonl#1", "no_text"), ("a.jsonl#2", "no_text")]


def test_values_too_deep_to_write_are_corrupt_not_fatal(bench):
    deep = '{"text":"a","x":' + "[" * 1000 + "]" * 1000 + "}"
    read = Read(bench.jsonl("a.jsonl", [deep, '{"text":"b"}', "[" * 100_000]))
    texts = read.column("text")
    assert texts in (["b"], ["a", "b"])  # how deep Python writes depends on its version
    assert len(read.corrupt) == 3 - len(texts)


CHUNKS = st.sampled_from([3, 7, 64, 1 << 20])
LINES = st.lists(
    st.one_of(
        st.text(alphabet="aé\n\r\u2028\U0001f600", max_size=8).map(
            lambda t: json.dumps({"text": t}, ensure_ascii=False).encode()
        ),
        st.sampled_from([b"", b"\r", b"  ", b"{broken", b'{"no":1}', b'{"text":"' + b"y" * 90]),
    ),
    max_size=12,
)


def _described(events: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (e.offset, e.text, e.reject) if isinstance(e, Row) else (e.offset, e.what) for e in events
    ]


@given(
    lines=LINES, last=st.booleans(), cuts=st.lists(st.integers(1, 300), max_size=5), chunk=CHUNKS
)
@settings(max_examples=300, deadline=None)
def test_slices_cut_anywhere_hold_the_same_documents(lines, last, cuts, chunk):
    data = b"\n".join(lines) + (b"\n" if last else b"")
    whole = list(jsonl.read_lines(io.BytesIO(data), "plain", 0, None, 60, {}))
    bounds = sorted({0, *(c for c in cuts if c < len(data))})
    pieces = []
    with patch.object(compression, "BLOCK", chunk):
        for start, end in zip(bounds, [*bounds[1:], None], strict=True):
            pieces += list(jsonl.read_lines(io.BytesIO(data), "plain", start, end, 60, {}))
    assert _described(pieces) == _described(whole)


@given(lines=LINES)
@settings(max_examples=50, deadline=None)
def test_every_line_is_a_document_or_corrupt_or_blank(lines):
    data = b"\n".join(lines)
    events = list(jsonl.read_lines(io.BytesIO(data), "plain", 0, None, 1000, {}))
    filled = [line for line in data.split(b"\n") if line.strip()]
    assert len(events) == len(filled)
    assert all(isinstance(e, Row | Corrupt) for e in events)


def test_a_truncated_gzip_gives_what_is_there_and_is_reported(tmp_path):
    lines = [json.dumps({"text": f"{i} {'abcdefgh' * (i % 7)}"}) for i in range(5000)]
    packed = gzip.compress("\n".join(lines).encode())
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    read = Read(path)
    assert 1000 < len(read.rows) < 5000
    assert read.column("text") == [json.loads(x)["text"] for x in lines[: len(read.rows)]]
    assert any("ends inside" in c["what"] for c in read.corrupt)


# -- ids and columns ------------------------------------------------------------------------


def test_own_ids_are_kept_whatever_their_type(bench):
    big = 10**30
    rows = [
        {"id": "own", "text": "a"},
        {"id": 17, "text": "b"},
        {"id": big, "text": "c"},
        {"id": "", "text": "d"},
        {"id": None, "text": "e"},
        {"id": ["x"], "text": "f"},
        {"id": 0, "text": "g"},
    ]
    read = Read(bench.jsonl("a.jsonl", rows))
    ids = ["own", "17", str(big), "a.jsonl#3", "a.jsonl#4", "a.jsonl#5", "0"]
    assert read.column("id") == ids
    assert json.loads(read.rows[5]["extra"]) == {"id": ["x"]}


def test_unknown_columns_keep_their_types_and_misfits_go_to_extra(bench):
    rows = [
        {"text": "a", "n": 1, "f": 0.5, "ok": True, "tag": "x", "meta": {"b": [1], "a": None}},
        {"text": "b", "n": 2**40, "f": 3, "ok": None, "tag": None},
    ]
    late = {"text": "c", "n": "three", "new": 1}
    read = Read(bench.jsonl("a.jsonl", [*rows, *[{"text": "-"}] * 1000, late]))
    first, second, last = read.rows[0], read.rows[1], read.rows[-1]
    assert (first["n"], first["f"], first["ok"], first["tag"]) == (1, 0.5, True, "x")
    assert json.loads(first["meta"]) == {"a": None, "b": [1]}
    assert (second["n"], second["f"], second["ok"]) == (2**40, 3.0, None)
    assert type(second["n"]) is int
    assert json.loads(last["extra"]) == {"n": "three", "new": 1}
    assert last["n"] is None


def test_input_columns_with_names_of_ours_get_a_prefix(bench):
    row = {"text": "a", "rule": "r", "_n": 5, "edits": [1], "extra": "e", "reasons": "x", "": 1}
    read = Read(bench.jsonl("a.jsonl", [row]))
    prefixed = {k: v for k, v in read.rows[0].items() if k.startswith("input.") and v is not None}
    assert prefixed == {
        "input.rule": "r",
        "input._n": 5,
        "input.edits": "[1]",
        "input.extra": "e",
        "input.reasons": "x",
        "input.": 1,
    }


def test_keys_without_end_make_no_columns_without_end(bench):
    rows = [{"text": "a", **{f"k{i}-{j}": j for j in range(50)}} for i in range(50)]
    read = Read(bench.jsonl("a.jsonl", rows))
    assert len(read.plan.columns) <= 501
    last = read.rows[-1]
    assert (
        sum(v is not None for k, v in last.items() if k.startswith("k"))
        + len(json.loads(last["extra"]))
        == 50
    )


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("2020-05-01T12:00:00Z", dt.datetime(2020, 5, 1, 12, tzinfo=UTC)),
        ("2020-05-01T12:00:00", dt.datetime(2020, 5, 1, 12, tzinfo=UTC)),
        ("2020-05-01T12:00:00+02:00", dt.datetime(2020, 5, 1, 10, tzinfo=UTC)),
        ("2020-05-01", dt.datetime(2020, 5, 1, tzinfo=UTC)),
        (0, dt.datetime(1970, 1, 1, tzinfo=UTC)),
        (1e300, None),
        ("0001-01-01T00:00:00+23:00", None),
        ("yesterday", None),
        (True, None),
    ],
)
def test_dates_are_utc_or_null_and_unreadable_ones_are_kept_in_extra(bench, value, wanted):
    (row,) = Read(bench.jsonl("a.jsonl", [{"text": "a", "date": value}])).rows
    assert row["date"] == wanted
    assert wanted is not None or json.loads(row["extra"])["date"] == value


def test_the_reader_signals_each_record_it_reads(tmp_path):
    """So the time limit applies to each record, whatever the batch or the share."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"text": "document {i}"}}\n' for i in range(5)))
    heard: list[None] = []
    read = ReadSettings(share=0.01)
    reader = PartitionReader(plan_inputs([str(path)]), 0, read, lambda: heard.append(None))
    assert [batch.docs for batch in reader] == [] and len(heard) == 5


def test_batch_seconds_is_part_of_the_read_identity():
    assert ReadSettings(batch_seconds=0).identity() != ReadSettings().identity()


# -- parquet --------------------------------------------------------------------------------


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_row_groups_are_slices_and_ordinals_count_from_the_start_of_the_file(bench):
    texts = [f"{i} " + "abcdefghij" * 50 for i in range(40)]
    path = parquet(bench.folder / "a.parquet", {"text": texts}, row_group_size=5)
    read = Read(path, partition_bytes=1024)
    assert len(read.plan.partitions) > 2
    assert read.column("text") == texts
    bench.run(["dedup_exact"], path, read={"partition_bytes": 1024})
    assert bench.ids() == [f"a.parquet#{i}" for i in range(40)]


def test_damaged_parquet_is_corrupt_not_a_traceback(bench):
    path = parquet(bench.folder / "good.parquet", {"text": ["a" * 1000, "b"], "id": ["1", "2"]})
    data = path.read_bytes()
    folder = bench.folder / "in"
    folder.mkdir()
    (folder / "cut.parquet").write_bytes(data[: len(data) // 2])
    (folder / "empty.parquet").write_bytes(b"")
    (folder / "good.parquet").write_bytes(data)
    middle = bytearray(data)
    middle[20:60] = bytes(40)
    (folder / "holed.parquet").write_bytes(bytes(middle))
    read = Read(folder)
    assert read.column("id") == ["1", "2"]
    assert {Path(c["file"]).name for c in read.corrupt} == {
        "cut.parquet",
        "empty.parquet",
        "holed.parquet",
    }


def test_parquet_of_a_type_that_arrow_lacks_is_named(bench):
    polars = pytest.importorskip("polars")
    folder = bench.folder / "in"
    folder.mkdir()
    big = polars.Series([2**100], dtype=polars.Int128)
    polars.DataFrame({"text": ["a"], "big": big}).write_parquet(folder / "big.parquet")
    parquet(folder / "good.parquet", {"text": ["b"]})
    read = Read(folder)
    assert read.column("text") == ["b"]
    (place,) = read.corrupt
    assert place["file"].endswith("big.parquet") and "more than 64 bits" in place["what"]


def test_parquet_dates_of_any_type_are_utc(bench):
    noon = dt.datetime(2020, 5, 1, 12)
    kinds = {
        "naive": pa.array([noon, None], pa.timestamp("ms")),
        "zone": pa.array([noon, None], pa.timestamp("ns", "Asia/Tokyo")),
        "day": pa.array([noon.date(), None], pa.date32()),
        "text": pa.array(["2020-05-01T12:00:00+02:00", None]),
    }
    read = {}
    for name, dates in kinds.items():
        path = parquet(bench.folder / f"{name}.parquet", {"text": ["a", "b"], "date": dates})
        read[name] = Read(path).column("date")
    assert read["naive"] == [noon.replace(tzinfo=UTC), None]
    assert read["zone"][0] == noon.replace(tzinfo=UTC)
    assert read["day"][0] == dt.datetime(2020, 5, 1, tzinfo=UTC)
    assert read["text"][0] == dt.datetime(2020, 5, 1, 10, tzinfo=UTC)


def test_parquet_columns_keep_their_types_null_texts_are_rejected(bench):
    columns = {
        "text": pa.array(["a", None, "c"]).dictionary_encode(),
        "id": pa.array([7, 8, 9]),
        "tags": pa.array([["x"], None, []], pa.list_(pa.string())),
        "when": pa.array([1, 2, 3], pa.time32("s")),
        "nothing": pa.nulls(3),
    }
    read = Read(parquet(bench.folder / "a.parquet", columns))
    assert read.column("id") == ["7", "9"]
    assert read.refused == [("8", "no_text")]
    assert read.column("tags") == [["x"], []]
    assert read.column("when")[0] == dt.time(0, 0, 1)


def test_parquet_text_that_is_no_utf8_is_mended(bench):
    raw = pa.array([b"good", b"bad \xff", None])
    bad = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    read = Read(parquet(bench.folder / "a.parquet", {"text": raw}))
    assert read.column("text") == ["good", "bad \ufffd"]
    read = Read(parquet(bench.folder / "b.parquet", {"text": ["a"] * 3, "note": bad}))
    assert read.column("note") == ["good", "bad \ufffd", None]


def test_parquet_with_texts_of_another_type_is_wrong_use(bench):
    for name, values in (("numbers", [1, 2]), ("lists", [["a"], ["b"]])):
        path = parquet(bench.folder / f"{name}.parquet", {"text": values})
        with pytest.raises(UsageError, match="column `text` is of type"):
            Read(path)


def test_a_compressed_table_is_refused_with_what_to_do(tmp_path):
    table = parquet(tmp_path / "a.parquet", {"text": ["a"]})
    (tmp_path / "b.parquet.gz").write_bytes(gzip.compress(table.read_bytes()))
    with pytest.raises(UsageError, match=r"b\.parquet\.gz: parquet inside gzip: decompress the"):
        Read(tmp_path / "b.parquet.gz")
    read = Read(tmp_path)
    assert read.column("text") == ["a"] and "parquet inside gzip" in read.plan.notices[0]


def test_folders_named_as_hive_names_them_are_columns(tmp_path):
    rows = {
        "lang=en/year=2024": {"text": ["a"], "n": [1]},
        "lang=pt%2DBR/year=2024": {"text": ["b", "c"], "n": [1, 2], "lang": ["es", None]},
        "lang=__HIVE_DEFAULT_PARTITION__/year=2023": {"text": ["d"]},
        "date=2024-05-01/source=web/n=7": {"text": ["e"]},
    }
    for folder, table in rows.items():
        (tmp_path / folder).mkdir(parents=True)
        parquet(tmp_path / folder / "a.parquet", table)
    (tmp_path / "lang=th/id=3/1=2").mkdir(parents=True)  # two names that cannot be columns
    (tmp_path / "lang=th/id=3/1=2/b.jsonl").write_text('{"text": "f"}\n{"text": "g", "n": 5}\n')
    read = Read(tmp_path)
    found = {row["text"]: row for row in read.rows}
    assert {text: row["lang"] for text, row in found.items()} == {
        "a": "en", "b": "es", "c": "pt-BR", "d": None, "e": None, "f": "th", "g": "th",
    }  # fmt: skip
    assert [found[text]["year"] for text in "abde"] == [2024, 2024, 2023, None]
    assert [found[text]["n"] for text in "acefg"] == [1, 2, 7, None, 5]
    assert found["e"]["source"] == "web" and found["e"]["date"].date() == dt.date(2024, 5, 1)
    assert found["f"]["id"] == "lang=th/id=3/1=2/b.jsonl#0" and "1" not in read.plan.columns
    assert not read.corrupt and set(read.plan.columns) == {"extra", "n", "year"}


def test_the_folders_above_an_input_that_are_named_so_count_too(tmp_path):
    for folder in ("lang=en/year=2023", "lang=de/year=2024"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        (tmp_path / "data" / folder / "a.txt").write_text("text")
    read = Read(tmp_path / "data/lang=en", tmp_path / "data/lang=de/year=2024/a.txt")
    assert read.column("lang") == ["en", "de"] and read.column("year") == [2023, 2024]
    ids = ["lang=en/year=2023/a.txt#0", "lang=de/year=2024/a.txt#0"]
    assert read.column("id") == ids == Read(tmp_path / "data").column("id")[::-1]


@pytest.mark.parametrize(
    ("folders", "values"),
    [
        (("v=1", "v=2"), [1, 2]), (("v=01", "v=02"), ["01", "02"]),
        (("v=1", "v=x"), ["1", '"x"']), (("v=a", "v=b=c"), ["a", "b=c"]),
    ],
)  # fmt: skip
def test_values_of_folders_have_one_type(tmp_path, folders, values):
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text("text")
    assert Read(tmp_path).column("v") == values


def test_an_out_folder_as_input_keeps_its_columns(bench):
    line = "The river runs past the old mill."
    rows = [{"id": "a", "text": f"{line}\n" * 4 + "cut me", "lang": "en", "n": 3, "odd": [1]}]
    bench.run(["c4"], bench.jsonl("in.jsonl", rows), out="one")
    bench.run(["dedup_exact"], bench.folder / "one", out="two")
    bench.run(["c4"], bench.folder / "two", out="three")
    (first,), (second,), (third,) = bench.rows("one"), bench.rows("two"), bench.rows("three")
    assert first["edits"] and first["lang"] == "en" and first["n"] == 3
    assert {k: v for k, v in second.items() if v is not None} == {
        k: v for k, v in first.items() if v is not None
    }
    assert third["edits"][: len(first["edits"])] == first["edits"]
    assert not any(k.startswith("input.") for k in third)


# -- files and folders ----------------------------------------------------------------------


def test_an_empty_file_is_an_input_without_documents(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    read = Read(tmp_path / "a.jsonl")
    assert (read.rows, read.corrupt) == ([], [])


def test_an_empty_folder_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="holds no file"):
        plan_inputs([str(tmp_path)])


def test_a_missing_input_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        plan_inputs([str(tmp_path / "nothing")])


def test_an_unknown_file_is_noticed_in_a_folder_and_refused_by_name(bench):
    bench.jsonl("in/a.jsonl", [{"text": "a"}])
    (bench.folder / "in/picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    plan = plan_inputs([str(bench.folder / "in")])
    assert [f.rel for f in plan.files] == ["a.jsonl"]
    assert len(plan.notices) == 1 and "picture.png: unknown format" in plan.notices[0]
    with pytest.raises(UsageError, match="not a format this tool reads"):
        plan_inputs([str(bench.folder / "in/picture.png")])


def test_pipes_and_broken_links_in_a_folder_are_passed_over(bench):
    bench.jsonl("in/a.jsonl", [{"text": "a"}])
    os.mkfifo(bench.folder / "in/pipe")
    (bench.folder / "in/broken.jsonl").symlink_to("nowhere")
    (bench.folder / "in/link.jsonl").symlink_to("a.jsonl")
    plan = plan_inputs([str(bench.folder / "in")])
    assert [f.rel for f in plan.files] == ["a.jsonl", "link.jsonl"]
    assert len(plan.notices) == 2


def test_file_urls_read_like_paths(bench):
    row = {"id": "a", "text": "text"}
    paths = [
        bench.jsonl("a.jsonl", [row]),
        parquet(bench.folder / "b.parquet", {"id": ["b"], "text": ["other"]}),
    ]
    archive = bench.folder / "c.warc"
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nplain words"
    head = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\n"
        "WARC-Target-URI: http://a.test/\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
        f"Content-Type: application/http\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    archive.write_bytes(head.encode() + body + b"\r\n\r\n")
    urls = [f"file://{p}" for p in (*paths, archive)]
    bench.run(["extract", "dedup_exact"], *urls, workers=2, read={"partition_bytes": 1024})
    assert bench.ids() == ["a", "b", "urn:uuid:1"]
    assert bench.rows()[2]["text"].strip() == "plain words"


def test_memory_urls_are_read_in_process():
    import fsspec

    with fsspec.open("memory://box/a.jsonl", "wb") as f:
        f.write(b'{"text": "one"}\n')
    assert Read("memory://box").column("text") == ["one"]
