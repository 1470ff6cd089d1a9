"""Evaluation items in documents: which documents are dropped, and the report on each item."""

from __future__ import annotations

import io
import json
import random
from itertools import islice
from typing import Any

import pytest

from curate.dedup.decontaminate.decontamination import Decontaminate
from tests.curate.dedup.decontaminate_cases import (
    COMMON,
    ITEMS,
    LONG,
    MODES,
    agree,
    contamination,
    corpus,
    here,
    sets_of,
)
from tests.parameters import mostly_slow


@pytest.mark.parametrize("settings", MODES, ids=str)
def test_documents_with_evaluation_items_are_dropped_as_in_plain_python(bench, settings):
    rows = corpus(ITEMS, COMMON)
    assert 20 <= agree(bench, ITEMS, rows, settings) < 75


@pytest.mark.skipif(not LONG.exists(), reason=f"no {LONG}; set LLMCURATE_SHARED")
@pytest.mark.parametrize(
    "settings",
    [MODES[0], *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:3])],
    ids=str,
)
def test_documents_with_evaluation_items_are_dropped_as_in_plain_python_on_real_text(
    bench, settings
):
    import zstandard

    items: dict[str, list[str]] = {}
    fill: list[str] = []
    for name in ("en", "th", "zh", "ru"):
        path = sorted(LONG.glob(f"{name}-*.jsonl.zst"))[0]
        with path.open("rb") as file:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
            text = " ".join(json.loads(line)["text"] for line in islice(lines, 40))
        items[name] = [text[k : k + 160] for k in range(2000, 6000, 700)]
        fill += [text[k : k + 30] for k in range(8000, 11_000, 30)]
    rows = corpus(items, fill, seed=3)
    assert agree(bench, items, rows, settings) > 20


def test_the_length_of_windows_is_the_fifth_percentile_between_8_and_13(bench):
    def length(words: list[int]) -> tuple[int, list[int]]:
        rows = [{"text": " ".join(f"w{i}x{k}" for k in range(n))} for i, n in enumerate(words)]
        path = str(bench.jsonl("set.jsonl", rows))
        windows = Decontaminate(evals=(path,)).windows()
        return windows.lengths["set"], (windows.rows[1:] - windows.rows[:-1]).tolist()

    # 40 items: the second shortest is the 5th percentile; what is shorter is one window
    assert length([20] * 40)[0] == 13
    assert length([9, 11, *[20] * 38]) == (11, [1, 1, *[10] * 38])
    assert length([9, *[12] * 9, *[20] * 30]) == (12, [*[1] * 10, *[9] * 30])
    assert length([3, 4, 5, *[20] * 30])[1][:4] == [0, 0, 0, 13]
    assert length([3, 4, 5, *[20] * 30])[0] == 8


@pytest.mark.parametrize("action", mostly_slow(["cut", "drop"]))
def test_one_or_two_workers_leave_the_same_bytes(bench, action):
    rows = corpus(ITEMS, COMMON)
    source = bench.jsonl("in.jsonl", rows)
    step = {"evals": sets_of(bench, ITEMS), "action": action, "max_hits": 30}
    for workers in (1, 2):
        bench.run(
            [{"decontaminate": step}],
            source,
            out=f"out{workers}",
            workers=workers,
            read={"partition_bytes": 5000},
        )
    assert bench.bytes_of("out1") == bench.bytes_of("out2")
    first, second = (bench.folder / f"out{n}/contamination.parquet" for n in (1, 2))
    assert first.read_bytes() == second.read_bytes()


def test_each_item_is_reported(bench):
    q = ITEMS["math"]
    rows = [
        {"id": "whole", "text": f"Before it. {q[0]} After it."},
        {"id": "part", "text": f"Before it. {q[0][:110]} After it."},
        {"id": "none", "text": "Nothing of that kind is in this document."},
    ]
    step = {"evals": sets_of(bench, ITEMS)}
    outcome = bench.run([{"decontaminate": step}], bench.jsonl("in.jsonl", rows))
    reported = contamination(bench)
    assert [(r["set"], r["item"]) for r in reported] == [
        (name, f"{name}{k}") for name in ITEMS for k in range(3)
    ]
    first, second, short = reported[:3]
    assert first["documents"] == first["contaminated"] == 2
    assert (first["best_overlap"], first["example"]) == (1.0, "whole")
    assert first["matched"] == q[0].rstrip("?")
    assert (second["documents"], second["best_overlap"], second["example"]) == (0, 0.0, None)
    assert (short["units"], short["windows"], short["matched"]) == (5, 0, None)
    decided = outcome.stages[0].decided
    assert decided["sets"]["math"] == {"items": 3, "checked": 2, "hit": 1, "documents": 2}
    assert decided["notes"][0] == "math: 1 of 2 checked items (50.0%) are in 2 documents"
    assert "1 shorter than 8 not checked" in " ".join(decided["notes"])
    assert "math: 1 of 2 checked items" in (bench.folder / "out/report.html").read_text()


def test_the_longest_passage_of_the_best_document_is_shown(bench):
    text = " ".join(f"word{k}" for k in range(60))
    words = text.split()
    items = bench.jsonl("set.jsonl", [{"id": "i", "text": text}])
    held = f"{' '.join(words[:14])} gap {' '.join(words[20:45])} gap {' '.join(words[46:60])}"
    rows = [{"id": "a", "text": " ".join(words[30:50])}, {"id": "b", "text": held}]
    (item,) = here(rows, evals=str(items)).items
    assert (item["example"], item["matched"]) == ("b", " ".join(words[20:45]))
    assert item["best_overlap"] == pytest.approx((2 + 13 + 2) / 48)


def test_n_grams_in_more_documents_than_max_hits_are_ignored(bench):
    saying = "it was the best of times it was the worst of times my friend"
    question = "why does the moth fly to the lamp at night when all is dark"
    items = bench.jsonl("set.jsonl", [{"id": "i", "text": f"{saying}\n{question}"}])
    rows = [{"id": f"s{k}", "text": f"{saying} {saying} number {k}"} for k in range(4)]
    rows += [{"id": "q", "text": f"tell me {question} please"}]
    for limit, gone in ((None, 5), (4, 5), (3, 1)):
        run = here(rows, evals=str(items), max_hits=limit)
        assert len(rows) - len(run.rows) == gone
    assert "ignored (max_hits): 2 windows in more than 3 documents" in str(run.summary["notes"])
    assert run.items[0]["documents"] == 1


def test_a_share_at_the_threshold_drops_and_the_first_of_equal_items_is_named(bench):
    """Two items of ten windows, of which documents hold seven, or six."""
    words = [f"w{i}" for i in range(11)]
    texts = [{"id": "b", "text": " ".join(words)}, {"id": "a", "text": " ".join(words)}]
    items = bench.jsonl("set.jsonl", texts)
    rows = [{"id": str(n), "text": " ".join(words[:n])} for n in (7, 8, 9)]
    for threshold, kept in ((0.7, ["7"]), (0.71, ["7", "8"]), (0.8, ["7", "8"]), (0.6, [])):
        run = here(rows, evals=str(items), mode="overlap", ngram=2, threshold=threshold)
        assert list(run.rows) == kept
        assert {d["partner_id"] for d in run.decisions} == {"b"}


def test_other_limits_use_the_same_sketches(bench):
    source = bench.jsonl("in.jsonl", corpus(ITEMS, COMMON))
    step = {"evals": sets_of(bench, ITEMS)}
    bench.run([{"decontaminate": step}], source)
    before = {p: p.stat().st_mtime_ns for p in bench.folder.glob("out/stages/*/*sketch*")}
    bench.run([{"decontaminate": step | {"max_hits": 1}}], source)
    after = {p: p.stat().st_mtime_ns for p in bench.folder.glob("out/stages/*/*sketch*")}
    assert before == after and before


def test_text_shared_by_many_items_is_not_searched(bench):
    template = "Choose the one right answer to the following question out of these four words:"
    questions = [" ".join(f"q{k}w{i}" for i in range(9)) for k in range(6)]
    items = bench.jsonl("set.jsonl", [{"text": f"{template} {q}"} for q in questions])
    rows = [
        {"id": "guide", "text": f"Exams often say: {template} and so on."},
        {"id": "leak", "text": f"{template} {questions[2]}"},
    ]
    for limit, kept in ((100, []), (5, ["guide"]), (None, [])):
        run = here(rows, evals=str(items), max_items=limit)
        assert list(run.rows) == kept
        noted = "windows shared by more than 5 items" in str(run.summary["notes"])
        assert noted == (limit == 5)


def test_items_with_only_shared_text_are_reported_as_unchecked(bench):
    same = "one two three four five six seven eight nine ten eleven twelve thirteen"
    items = bench.jsonl("set.jsonl", [{"text": same}] * 4)
    step = Decontaminate(evals=(str(items),), max_items=3)
    assert "4 not checked because their text is shared by many items" in step.forecast()[0]
    assert len(step.windows().gram) == 0


def test_sampled_windows_are_reproducible(bench):
    text = "".join(random.Random(4).choices("abcdefghijklmnopqrstuvwxyz", k=400))
    items = bench.jsonl("set.jsonl", [{"id": "a", "text": text}, {"id": "b", "text": text[:30]}])

    def drawn(**more: Any) -> list[int]:
        windows = Decontaminate(evals=(str(items),), mode="50-char", **more).windows()
        assert (windows.end - windows.start)[-1] == 30  # the whole of the short one
        return windows.start[:-1].tolist()

    assert len(drawn()) == 351
    assert len(drawn(samples=3)) == 3
    assert drawn(samples=3) == drawn(samples=3) != drawn(samples=3, seed=1)
    assert set(drawn(samples=3)) <= set(range(351))
