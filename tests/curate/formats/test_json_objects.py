"""JSON in arrays and over many lines: every object is found; damage costs only what it touches."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.formats.events import Corrupt, Row
from curate.formats.json_objects import in_lines, objects
from curate.formats.jsonl import one_object, read_lines
from curate.formats.lines import HEAD
from tests.curate.doubling import grows_linearly
from tests.curate.formats.portions import corrupt, events, rows

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(['{"', "}]", '\\"', "[{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=3), VALUES), max_size=5)


def array(values: list[Any]) -> str:
    """Write on one line, as most sets of instructions come."""
    return json.dumps(values, ensure_ascii=False)


def pretty_array(values: list[Any]) -> str:
    return json.dumps(values, indent=2)


def sequence(values: list[Any]) -> str:
    """Write as `jq .` does."""
    return "".join(json.dumps(value, indent=2, ensure_ascii=False) + "\n" for value in values)


def tight(values: list[Any]) -> str:
    """Write without separators, as `jq -j` does."""
    return "".join(json.dumps(value) for value in values)


LAYOUTS = [array, pretty_array, sequence, tight]


def pieces(data: bytes, size: int, limit: int = 1 << 20) -> list[tuple[int, bytes | None, int]]:
    """Return what the scanner finds in chunks of `size` bytes."""
    return [*objects((data[i : i + size] for i in range(0, len(data), size)), limit)]


@given(OBJECTS, st.sampled_from(LAYOUTS), st.integers(1, 40))
def test_objects_are_those_that_pythons_json_reads(
    values: list[Any], layout: Callable[[list[Any]], str], size: int
) -> None:
    data = layout(values).encode()
    found = pieces(data, size)
    assert [json.loads(piece or b"") for _, piece, _ in found] == values
    assert all(data[at : at + n] == piece for at, piece, n in found)


@given(st.binary(max_size=60) | st.text('[]{}",:\\ \n\0a', max_size=60).map(str.encode))
def test_any_bytes_are_scanned_and_chunks_change_nothing(data: bytes) -> None:
    whole = pieces(data, 1 << 20)
    assert all(pieces(data, size) == whole for size in (1, 2, 3, 7))


def texts(data: bytes, limit: int = 1 << 20) -> list[Any]:
    found = read_lines(io.BytesIO(data), "plain", 0, None, limit, {})
    return [e.text if isinstance(e, Row) else e.what for e in found if not isinstance(e, tuple)]


ROWS = [{"id": n, "text": f"Text {n}.", "tags": [{"a": "{"}, {"b": n}]} for n in range(5)]
TEXTS = [row["text"] for row in ROWS]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz", "content"])
def test_a_file_of_any_layout_is_read(
    tmp_path: Path, layout: Callable[[list[Any]], str], name: str
) -> None:
    data = layout(ROWS).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = events(tmp_path / name, partition_bytes=100)
    assert [row.text for row in rows(found)] == TEXTS and not corrupt(found)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "layout", [pretty_array, lambda values: "\n".join(map(json.dumps, values))]
)
def test_utf_16_is_read_as_if_it_were_utf_8(
    tmp_path: Path, layout: Callable[[list[Any]], str], encoding: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(layout(ROWS).encode(encoding))
    found = events(tmp_path / "a.jsonl", partition_bytes=100)
    assert [row.text for row in rows(found)] == TEXTS and not corrupt(found)


def test_offsets_of_damage_in_utf_16_say_of_what_they_are() -> None:
    (what,) = texts('{"text": broken}\n'.encode("utf-16"))
    assert what.endswith("(offset after conversion from utf-16le to UTF-8)")


def test_an_array_without_objects_gives_nothing() -> None:
    assert texts(b"[]") == texts(b"[\n]\n") == []


def damaged(*lines: str) -> bytes:
    """Write a pretty-printed array whose second object is damaged."""
    first, _, third = (json.dumps(row, indent=2).replace("\n", "\n  ") for row in ROWS[:3])
    return "\n".join(["[", f"  {first},", *lines, f"  {third}", "]"]).encode()


@pytest.mark.parametrize(
    "lines",
    [
        ["  {", '    "text": "cut'],
        ["  {", '    "text": "cut",'],
        ["  {", '    "text": "cut"'],
        ["  {", '    "text": ["cut"},'],
        ["  {", '    "text": "a\0\0"', "  },"],
        ["  17,"],
    ],
)
def test_a_damaged_object_is_reported_and_those_around_it_are_read(lines: list[str]) -> None:
    data = damaged(*lines)
    first, bad, third = texts(data)
    assert (first, third) == ("Text 0.", "Text 2.") and "not " in bad
    assert all(pieces(data, size) == pieces(data, 1 << 20) for size in (1, 5, 17))


def test_an_object_beyond_the_limit_is_rejected_unheld() -> None:
    values = [{"text": "a"}, {"text": "x" * 99}, {"text": "b"}]
    for layout in LAYOUTS:
        found = [*read_lines(io.BytesIO(layout(values).encode()), "plain", 0, None, 50, {})]
        assert [e.reject and e.reject[0] for e in found] == [None, "line_too_long", None], layout


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"a": 1}\n{"a": 2}\n', True),
        (b'{"a": "cut\n{"a": 2}\n', True),  # a damaged first line
        (b'{"a": "' + b"x" * HEAD, True),  # a line longer than what is looked at
        (b"[1, 2]\n", True),
        (b"", True),
        (b"{\n", False),
        (b'{"a":\n1}\n', False),
        (b"\xef\xbb\xbf[{", False),
        (b"[]", False),
    ],
)
def test_the_beginning_tells_whether_a_file_has_lines(head: bytes, expected: bool) -> None:
    assert in_lines(head) == expected


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_with_records_says_what_makes_lines_of_it(
    tmp_path: Path, indent: int | None
) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"version": "1.1", "data": ROWS}, indent=indent))
    line = one_object(str(path), "plain")
    assert line and "data holds the records: jq -c '.data[]' writes one per line" in line
    path.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[1]))
    assert one_object(str(path), "plain") is None


@pytest.mark.parametrize("orient", ["columns", "split"])
def test_a_table_by_columns_says_how_pandas_writes_rows(tmp_path: Path, orient: Any) -> None:
    path = tmp_path / "table.json"
    pandas.DataFrame({"text": ["a", "b"], "n": [1, 2]}).to_json(path, orient=orient)
    line = one_object(str(path), "plain")
    assert line and "orient='records', lines=True" in line
    pandas.DataFrame({"text": ["a", "b"]}).to_json(path, orient="records", lines=True)
    assert one_object(str(path), "plain") is None


@pytest.mark.parametrize(
    ("gap", "what"),
    [
        ("\n\ufeff", []),
        ("\ufeff", []),
        ("", []),
        ("\n" + "\0" * 9, ["9 NUL bytes"]),
        ("\0" * 9 + "\n", ["9 NUL bytes"]),
        ("\0" * 5000, ["5000 NUL bytes"]),
        ("\n" + "\0" * (3 << 20) + "\ufeff", [f"{3 << 20} NUL bytes"]),
    ],
    ids=["mark", "mark-without-newline", "nothing", "hole", "end", "joint", "long"],
)
def test_joined_lines_are_all_read(gap: str, what: list[str]) -> None:
    lines = [json.dumps(row) for row in ROWS[:2]]
    found = texts(gap.join(["", *lines, ""]).encode(), limit=1000)
    assert [text for text in found if text in TEXTS] == TEXTS[:2]
    assert sorted({*found} - {*TEXTS}) == what


def test_a_line_on_both_sides_of_a_hole_is_no_document() -> None:
    data = b'{"text": "one' + bytes(4096) + b' nine"}\n{"text": "ten"}\n'
    found = [*read_lines(io.BytesIO(data), "plain", 0, None, 1 << 20, {})]
    assert found[0] == Corrupt(13, "4096 NUL bytes") and isinstance(found[2], Corrupt)
    assert [e.text for e in found if isinstance(e, Row)] == ["ten"]


def test_a_nul_in_a_text_is_a_replacement_character() -> None:
    assert texts(b'{"text": "a\0b"}\n') == ["a\ufffdb"]


@pytest.mark.parametrize("part", [b'"\n', b"[", b"{", b'{"a', b'\\"', b'{"a": [', b"\0{", b"\n{"])
def test_hostile_text_costs_time_in_proportion(part: bytes) -> None:
    def scan(data: bytes) -> None:
        for _ in objects([data] * 2, 1 << 20):
            pass

    assert grows_linearly(scan, lambda n: b'{"a": ' + part * n, 20_000)
