"""Counting tokens as token shards count them."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from llmcurate.base.errors import UsageError

ROWS = [
    {"id": f"d{i}", "text": f"the mill {'by the river ' * i}runs. \u0e19\u0e49\u0e33", "votes": i}
    for i in range(40)
]


@pytest.fixture
def tokenizer(bench):
    bench.run([{"tokenizer": {"vocab": 300}}], bench.jsonl("in.jsonl", ROWS), out="tok")
    return str(bench.folder / "tok")


def test_the_counts_are_those_of_token_shards_without_end_tokens(bench, tokenizer):
    steps = [{"token_count": {"tokenizer": tokenizer}}, {"shards": {"tokenizer": tokenizer}}]
    for out, workers in (("out", 1), ("two", 2)):
        bench.run(steps, bench.folder / "in.jsonl", out=out, workers=workers)
    counts = {row["id"]: row["token_count"] for row in bench.rows("out")}
    shards = pq.read_table(bench.folder / "out/documents-00000.parquet").to_pylist()
    assert counts == {row["id"]: row["tokens"] - 1 for row in shards}
    assert bench.rows("two") == bench.rows("out")


def test_a_corpus_and_later_steps_read_the_counts_by_name(bench, tokenizer):
    limit = {"column_filter": {"column": "token_count", "min": 60}}
    count = {"token_count": {"tokenizer": tokenizer}}
    bench.run([count, limit], bench.folder / "in.jsonl", out="at-once")
    bench.run([count], bench.folder / "in.jsonl", out="out")
    for number, source in enumerate(("out", "out/corpus")):
        bench.run([limit], bench.folder / source, out=f"later{number}")
        kept = {row["id"] for row in bench.rows(f"later{number}")}
        assert kept == {row["id"] for row in bench.rows("at-once")} and 0 < len(kept) < 40


def test_an_own_column_of_this_name_stays_and_a_missing_file_is_one_line(bench, tokenizer):
    source = bench.jsonl("own.jsonl", [{**row, "token_count": -1} for row in ROWS])
    bench.run([{"token_count": {"tokenizer": tokenizer}}], source)
    assert all(r["token_count"] == -1 < r["token_count.token_count"] for r in bench.rows("out"))
    with pytest.raises(UsageError, match="token_count: cannot read nowhere"):
        bench.run([{"token_count": {"tokenizer": "nowhere"}}], source, out="no")
