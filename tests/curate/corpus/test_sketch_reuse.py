"""Sketches are reused when a changed dedup setting does not affect them."""

from __future__ import annotations

import pytest

from tests.parameters import mostly_slow

WORDS = [f"w{i}" for i in range(200)]


def rows() -> list[dict[str, object]]:
    text = " ".join(WORDS)
    return [
        {"id": "a", "text": text, "date": "2020-01-02", "score": 1.0},
        {"id": "b", "text": text + " more", "date": "2020-01-01", "score": 2.0},
        {"id": "c", "text": " ".join(WORDS[::-1]), "date": "2020-01-03", "score": 3.0},
    ]


def sketches(bench) -> dict[str, int]:
    """When each sketch file was written."""
    paths = (bench.folder / "out/stages").rglob("part-*.sketch-*.parquet")
    return {path.name: path.stat().st_mtime_ns for path in paths}


@pytest.mark.parametrize("step", mostly_slow(["dedup_exact", "dedup_minhash"]))
def test_another_survivor_policy_reuses_the_sketches(bench, step):
    source = bench.jsonl("in.jsonl", rows())
    kept = {}
    for survivor in ("longest", "newest", "first", "longest"):
        bench.run([{step: {"survivor": survivor}}], source)
        kept[survivor] = bench.ids()
        written = sketches(bench)
        assert len(written) == 1
        assert kept.setdefault("written", written) == written
    if step == "dedup_minhash":
        assert kept["longest"] == ["b", "c"] and kept["newest"] == kept["first"] == ["a", "c"]


def test_a_survivor_policy_that_needs_another_column_sketches_again(bench):
    source = bench.jsonl("in.jsonl", rows())
    bench.run([{"dedup_minhash": {"survivor": "newest"}}], source)
    bench.run([{"dedup_minhash": {"survivor": "best:score"}}], source)
    assert len(sketches(bench)) == 2
    assert bench.ids() == ["b", "c"]


def test_another_max_removal_recomputes_nothing(bench):
    source = bench.jsonl("in.jsonl", rows())
    bench.run([{"dedup_minhash": {"max_removal": 0.5}}], source)
    assert bench.run([{"dedup_minhash": {"max_removal": 0.9}}], source).nothing_new
