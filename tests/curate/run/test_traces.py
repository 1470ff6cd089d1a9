"""Traces: bytes of text in and out of each step, and examples of what was cut."""

from __future__ import annotations

import itertools
from typing import Any

from curate.run.messages import CutExample
from curate.run.worker.traces import smallest

GOOD = "\n".join(["The river runs past the old mill and on."] * 4)
STEPS: list[Any] = [{"c4": {}}, {"dedup_exact": {"max_removal": 1}}]


def test_examples_are_those_of_the_smallest_hashes_in_any_order() -> None:
    examples = [CutExample(key, "", str(key), 1, "", "") for key in (5, 1, 4, 1, 2)]
    for order in itertools.permutations(examples):
        assert [e.key for e in smallest([*order])] == [1, 2, 4]


def test_bytes_out_of_a_step_are_bytes_into_the_next(bench: Any) -> None:
    rows = [{"text": GOOD + f"\nmenu {i}"} for i in range(30)] + [{"text": "short"}, {"text": GOOD}]
    source = bench.jsonl("in.jsonl", rows)
    outcome = bench.run(STEPS, source)
    first, second = outcome.stages
    assert first.text_in["c4"] == sum(len(r["text"].encode()) for r in rows)
    assert first.text_out["c4"] == first.bytes_out == second.text_in["dedup_exact"]
    assert second.text_out["dedup_exact"] == outcome.totals().bytes_out


def test_payloads_count_as_bytes_in_of_the_step_that_makes_text(bench: Any) -> None:
    page = f"<html><body><main><p>{GOOD}</p></main></body></html>"
    (bench.folder / "page.html").write_text(page)
    outcome = bench.run(["extract", {"c4": {}}], bench.folder / "page.html")
    (stage,) = outcome.stages
    assert stage.payload_in["extract"] == len(page) and stage.text_in["extract"] == 0
    assert stage.text_out["extract"] == stage.text_in["c4"]


def test_marked_documents_are_worked_on_but_no_longer_go_in(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": GOOD}, {"text": "short"}])
    (stage,) = bench.run([{"c4": {}}, {"gopher_quality": {}}], source).stages
    assert stage.text_in["gopher_quality"] < stage.worked["gopher_quality"]


def test_examples_of_cuts_do_not_depend_on_partitions_or_workers(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", [{"text": f"{GOOD}\nmenu {i} <b>\0"} for i in range(200)])
    single = bench.run([{"c4": {}}], source, out="one").stages[0]
    many = bench.run([{"c4": {}}], source, out="many", workers=2, read={"partition_bytes": 8192})
    assert single.cut_examples == many.stages[0].cut_examples
    examples = single.cut_examples["c4.no_end_mark"]
    assert len(examples) == 3
    assert all(e.cut.startswith("menu") and e.before.endswith("on.\n") for e in examples)
    assert "c4.white_space" not in single.cut_examples
