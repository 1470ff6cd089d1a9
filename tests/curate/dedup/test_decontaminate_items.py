"""Reading evaluation sets: what counts as an item, and errors for unusable files."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.dedup.decontaminate.items import named_files, read_items
from llmcurate.base.errors import UsageError


def items(*evals: object, fields: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    read = read_items(tuple(map(str, evals)), fields, "decontaminate")
    return [(i.set, i.id, i.text) for i in read]


def test_an_item_is_its_text_or_else_all_its_strings(bench):
    path = bench.jsonl(
        "arc.jsonl",
        [
            {"id": "a", "text": "only this", "more": "not this"},
            {"id": 7, "question": "q", "choices": {"text": ["x", "y"], "n": 3}, "label": "B"},
            {"question": "third"},
        ],
    )
    assert items(path) == [
        ("arc", "a", "only this"),
        ("arc", "7", "q\nx\ny\nB"),
        ("arc", "arc.jsonl#2", "third"),
    ]


def test_fields_are_joined_in_the_order_asked_for(bench):
    rows = [{"answer": 42, "choices": ["x", "y"], "question": "q", "id": "a"}, {"question": "r"}]
    path = bench.jsonl("set.jsonl", rows)
    read = items(path, fields=("question", "choices", "answer"))
    assert [i[2] for i in read] == ["q\nx\ny\n42", "r"]


def test_repeated_ids_are_numbered(bench):
    path = bench.jsonl("set.jsonl", [{"id": "a", "text": str(k)} for k in range(3)])
    assert [i[1] for i in items(path)] == ["a", "a~2", "a~3"]


def test_the_same_items_come_from_every_format(bench):
    rows = [{"id": "a", "text": "one ü"}, {"id": "b", "text": "two"}]
    lines = bench.jsonl("lines.jsonl", rows)
    packed = bench.folder / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    array = bench.folder / "array.json"
    array.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    table = bench.folder / "table.parquet"
    pq.write_table(pa.Table.from_pylist([{**r, "image": b"\xff"} for r in rows]), table)
    plain = bench.folder / "plain.txt"
    plain.write_text("one ü\n\n  \ntwo\n", encoding="utf-8")
    for path in (lines, packed, array, table):
        read = items(path)
        assert [i[1:] for i in read] == [("a", "one ü"), ("b", "two")], path
        assert {i[0] for i in read} == {path.name.split(".")[0]}
    assert [i[1:] for i in items(plain)] == [("plain.txt#0", "one ü"), ("plain.txt#1", "two")]


def test_sets_are_named_by_file_or_as_given(bench):
    first = bench.jsonl("gsm8k.test.jsonl", [{"text": "a b"}])
    second = bench.jsonl("other/gsm8k.test.jsonl", [{"text": "c d"}])
    assert named_files((str(first),), "x") == [("gsm8k.test", str(first))]
    assert [i[0] for i in items(first, f"train={second}")] == ["gsm8k.test", "train"]
    with pytest.raises(
        UsageError, match=r"two evaluation sets are named 'gsm8k.test'; use NAME=FILE"
    ):
        items(first, second)


def test_a_file_that_is_no_evaluation_set_is_a_one_line_error(bench):
    good = bench.jsonl("good.jsonl", [{"question": "q"}])
    with pytest.raises(UsageError, match=r"none of the fields query; fields: question"):
        items(good, fields=("query",))
    with pytest.raises(UsageError, match=r"record 2: not JSON"):
        items(bench.jsonl("bad.jsonl", [{"text": "a"}, "{oops"]))
    with pytest.raises(UsageError, match="no such file"):
        items(bench.folder / "absent.jsonl")
    with pytest.raises(UsageError, match="has no item with text"):
        items(bench.jsonl("empty.jsonl", [{"n": 3}]))
    with pytest.raises(UsageError, match="is a URL; download it"):
        items("https://host.test/set.jsonl")
    page = bench.folder / "page.html"
    page.write_text("<html>")
    with pytest.raises(UsageError, match="not html"):
        items(page)
    torn = bench.folder / "torn.jsonl.gz"
    torn.write_bytes(gzip.compress(b'{"text": "abc"}\n' * 1000)[:-20])
    with pytest.raises(UsageError, match="is damaged"):
        items(torn)


def test_lone_surrogates_are_replaced(bench):
    path = bench.jsonl("set.jsonl", [b'{"text": "a \\ud800 b"}'])
    assert items(path)[0][2].encode()
