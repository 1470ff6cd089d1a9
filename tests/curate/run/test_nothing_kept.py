"""A run that reads or keeps nothing says so first, with the main reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parameters import mostly_slow


def first_line(bench: Any, source: Path | str, *options: str) -> tuple[str, int]:
    result = bench.command("filter", "document_length", source, "-o", "out", "-q", *options)
    return (result.stdout.splitlines() or [result.stderr])[0], result.returncode


def test_a_run_that_drops_everything_says_so_first_and_exits_with_0_even_when_repeated(bench):
    source = bench.jsonl("in.jsonl", [{"text": f"Short {n}."} for n in range(4)])
    for _ in range(2):
        line, code = first_line(bench, source, "--min", "1000")
        assert (
            line == "nothing was kept: document_length dropped 4 of 4 (too_short 4)" and code == 0
        )
    assert line in (bench.folder / "out/report.html").read_text(encoding="utf-8")
    assert json.loads((bench.folder / "out/run.json").read_text())["totals"]["nothing_kept"] == line


def test_the_step_that_dropped_most_is_listed_first(bench):
    texts = ["A long text of some words.", "B long text of some words.", "C long text here.", "D"]
    source = bench.jsonl("in.jsonl", [{"text": text} for text in [*texts, texts[0]]])
    steps = [{"dedup_exact": {"max_removal": 1.0}}, {"document_length": {"min": 1000}}]
    line = bench.run(steps, source).totals().nothing_kept
    assert line.startswith("nothing was kept: document_length dropped 4 of 5 (too_short 4); dedup")


@pytest.mark.parametrize(
    ("row", "lacks"),
    mostly_slow(
        [
            (
                {"content": "A text.", "id": 1},
                "no column text; the files have content (string), id (int64)",
            ),
            (
                {"text": ["A text."], "body": "x"},
                "column text does not hold text; the files have text (list)",
            ),
            (
                {"text": None, "body": "A text"},
                "column text does not hold text; the files have text (null)",
            ),
        ],
        2,
    ),
)
def test_lines_without_a_text_name_their_columns_and_the_option(bench, row, lacks):
    source = bench.jsonl("in.jsonl", [row] * 3)
    line, code = first_line(bench, source)
    likely = "content" if "content" in row else "body"
    assert line.startswith(f"nothing was kept: {lacks}") and code == 0
    assert line.endswith(f"give --text-column {likely}")
    assert (
        first_line(bench, source, "--text-column", likely, "--set", "document_length.min=1")[1] == 0
    )


def test_the_longest_texts_are_advised_where_no_name_is_usual(bench):
    source = bench.jsonl(
        "in.jsonl", [{"lemma": "a", "words": "a b c d"}, {"lemma": "e", "words": ""}]
    )
    assert first_line(bench, source)[0].endswith("give --text-column words")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    mostly_slow(
        [
            ("a.jsonl", "no JSON\n", "1 place cannot be read, first "),
            ("a.jsonl", "", "the files hold no document"),
            (
                "a.warc",
                "WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
                "1 record of other types",
            ),
            ("a.parquet", "PAR1 and no table", "1 place cannot be read, first "),
        ],
        3,
    ),
)
def test_a_run_that_read_nothing_ends_with_1_and_keeps_its_records(bench, name, content, reason):
    (bench.folder / name).write_text(content, newline="")
    for _ in range(2):
        line, code = first_line(bench, bench.folder / name)
        assert line.startswith(f"nothing was read: {reason}") and code == 1
    assert (bench.folder / "out/report.html").exists()


def test_json_has_the_line_and_a_run_that_keeps_some_has_none(bench):
    source = bench.jsonl("in.jsonl", [{"text": "A text."}])
    line = ["filter", "document_length", source, "--json", "-q", "-o"]
    none = bench.command(*line, "none", "--min", "1000")
    assert json.loads(none.stdout)["nothing_kept"].startswith("nothing was kept: document_length")
    assert "nothing_kept" not in json.loads(bench.command(*line, "some", "--min", "1").stdout)


def test_a_product_of_nothing_names_the_columns(bench):
    source = bench.jsonl("in.jsonl", [{"content": "A text.", "id": 1}])
    result = bench.command("tokenizer", "train", source, "-o", "tok", "--vocab", "300")
    assert result.returncode == 1 and "give --text-column content" in result.stderr
