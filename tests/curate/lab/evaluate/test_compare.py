"""`llmcurate dedup compare`: each method over the same text, in a run of its own."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from curate.lab.evaluate.comparison import Comparison, compare, recipe_of, recipes_of
from curate.run.driver import run_planned
from curate.run.plan import make_plan
from curate.run.records import Options
from llmcurate.base.errors import UsageError
from tests.llmcurate.base.pages.structure import check_structure

SHARED = "This line stands on more than one of these pages, word for word."


def corpus() -> list[dict[str, Any]]:
    """a: original; b: the same text; c: the same URL as a; d, e: a shared line; f: alone."""
    draw = random.Random(3)

    def text() -> str:
        return " ".join("".join(draw.choices("abcdefgh", k=6)) for _ in range(80)) + "."

    a, lines = text(), [text() for _ in range(4)]
    return [
        {"id": "a", "text": a, "url": "https://h.test/a"},
        {"id": "b", "text": a, "url": "https://h.test/b"},
        {"id": "c", "text": lines[0], "url": "https://h.test/a"},
        {"id": "d", "text": f"{lines[1]}\n{SHARED}\n", "url": "https://h.test/d"},
        {"id": "e", "text": f"{lines[2]}\n{SHARED}\n", "url": "https://h.test/e"},
        {"id": "f", "text": lines[3], "url": "https://h.test/f"},
    ]


@pytest.fixture(scope="module")
def compared(shared_bench: Any) -> tuple[Comparison, Path]:
    source = shared_bench.jsonl("in.jsonl", corpus())
    out = shared_bench.folder / "out"
    sets = ("dedup_passages.min_sentences=0", "dedup_exact#2.max_removal=0.1")
    comparison = compare([str(source)], ["exact", "lines", "exact+url"], sets, out, None, 1, True)
    return comparison, out


def test_each_methods_remaining_documents_and_bytes_are_counted(compared: Any) -> None:
    comparison, out = compared
    size = sum(len(row["text"]) for row in corpus())
    assert (comparison.documents, comparison.bytes, comparison.tokens) == (6, size, round(size / 4))
    exact, lines, _ = comparison.rows
    assert (exact.documents, exact.documents_removed) == (5, round(1 / 6, 6))
    assert exact.bytes == size - len(corpus()[0]["text"])
    assert (lines.documents, lines.bytes) == (5, exact.bytes - len(SHARED) - 1)
    for row in (exact, lines):
        record = json.loads((out / row.method / "run.json").read_text())
        assert row.kept_ids == record["totals"]["kept_ids"] != ""
        assert (out / row.method / "report.html").exists()


def test_documents_that_lost_a_passage_are_distinguished_from_dropped_ones(compared: Any) -> None:
    both = compared[0].overlap
    assert both.methods == ["exact", "lines"]
    assert both.both == [[1, 1], [1, 1]]
    assert both.both_changed == [[1, 1], [1, 2]]


def test_time_and_memory_are_measured_for_each_method(compared: Any) -> None:
    for row in compared[0].rows[:2]:
        assert row.seconds > 0
        # A Python with its libraries, and far from what these six documents could need.
        assert 30e6 < row.peak_parent < 3e9 and 30e6 < row.peak_worker < 3e9


def test_a_method_stopped_by_its_guard_is_a_row_and_does_not_end_the_comparison(
    compared: Any,
) -> None:
    comparison, _ = compared
    stopped = comparison.rows[2]
    assert stopped.documents is None and "stopped by max_removal" in stopped.note
    assert not comparison.failed
    assert "exact+url: stopped by max_removal" in comparison.text()


def test_the_table_and_the_page_show_every_method(compared: Any) -> None:
    comparison, out = compared
    text = comparison.text()
    assert "16.7 %" in text and "50.0 %" in text and comparison.rows[0].kept_ids[:12] in text
    page = (out / "compare.html").read_text()
    check_structure(page)
    assert 'href="exact/report.html"' in page and "exact+url" in page
    data = json.loads((out / "compare.json").read_text())
    assert data["overlap"]["share_changed_too"] == [[1.0, 1.0], [0.5, 1.0]]


def test_a_repeated_comparison_reuses_its_measurements(compared: Any, shared_bench: Any) -> None:
    comparison, out = compared
    source = shared_bench.folder / "in.jsonl"
    again = shared_bench.command(
        "dedup", "compare", source, "-o", out, "--methods", "exact", "--json", "-q"
    )
    assert again.returncode == 0, again.stderr
    (row,) = json.loads(again.stdout.splitlines()[-1])["methods"]
    assert (row["seconds"], row["peak_parent"]) == (
        comparison.rows[0].seconds,
        comparison.rows[0].peak_parent,
    )


def test_a_run_done_in_several_goes_has_no_time(compared: Any, shared_bench: Any) -> None:
    out = shared_bench.folder / "goes"
    source = shared_bench.folder / "in.jsonl"
    shared_bench.run([{"dedup_exact": {}}], source, out="goes/exact")  # as if begun before
    comparison = compare([str(source)], ["exact"], (), out, None, 1, True)
    (row,) = comparison.rows
    assert (row.documents, row.seconds, row.peak_parent) == (5, None, None)
    assert row.kept_ids == compared[0].rows[0].kept_ids
    assert (
        "the run was resumed" in row.note
        and "the run was resumed" in (out / "compare.html").read_text()
    )


@pytest.mark.slow
def test_tokens_are_counted_where_a_tokenizer_is_given(bench: Any) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(bench.folder / "tokenizer.json"))
    source = bench.jsonl("in.jsonl", [{"text": "a b a"}, {"text": "a b a"}, {"text": "b"}])
    comparison = compare([str(source)], ["exact"], (), bench.folder / "o", bench.folder, 1, True)
    assert (comparison.tokens, comparison.rows[0].tokens, comparison.measured) == (7, 4, True)
    assert "tokens: counted" in comparison.text()


def test_wrong_use_is_reported_before_anything_runs(bench: Any) -> None:
    source = bench.jsonl("in.jsonl", corpus())
    for methods, sets, match in (
        (["exact", "magic"], (), "known: exact"),
        ([" "], (), "name at least one"),
        (["exact"], ("dedup_minhash.verify=1",), "no method has a section 'dedup_minhash'"),
        (["minhash"], ("dedup_minhash.very=1",), "unknown key 'very'"),
    ):
        with pytest.raises(UsageError, match=match):
            compare([str(source)], methods, sets, bench.folder / "out")
    (bench.folder / "page.html").write_text("<p>one</p>")
    with pytest.raises(UsageError, match="llmcurate extract"):
        compare([str(bench.folder / "page.html")], ["exact"], (), bench.folder / "out")
    assert not (bench.folder / "out").exists()


def test_a_setting_goes_to_the_methods_that_have_it() -> None:
    recipes = recipes_of(["exact", "exact+minhash"], ["dedup_minhash.verify=0.7"])
    assert [s.name for s in recipes["exact"].steps] == ["dedup_exact"]
    assert recipes["exact+minhash"].steps[1].verify == 0.7


@pytest.mark.slow  # each method has such a test of its own
def test_kept_ids_are_the_same_for_any_number_of_workers(bench: Any, make_pages: Any) -> None:
    for n in range(3):
        bench.jsonl(f"in/{n}.jsonl", make_pages(40, seed=n % 2))
    recipe = recipe_of("newest", ["read.partition_bytes=4096"])
    plan = make_plan(recipe, [str(bench.folder / "in")])
    assert len(plan.inputs.partitions) > 4
    hashes = {
        run_planned(plan, bench.folder / f"{workers}", Options(workers, True)).kept_ids
        for workers in (1, 2, 8)
    }
    assert len(hashes) == 1 and hashes != {""}
