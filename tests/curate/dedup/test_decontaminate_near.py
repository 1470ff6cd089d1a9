"""Documents that are near duplicates of an evaluation item, by the Jaccard similarity."""

from __future__ import annotations

import functools
import random

import pytest
from pydantic import ValidationError

from curate.dedup.decontaminate.decontamination import Decontaminate
from tests.curate.dedup import reference_decontaminate as reference
from tests.curate.similarity import near_copy

WORDS = [a + b + c for a in "bdfglm" for b in "aeiou" for c in "nrst"]
TARGETS = (0.3, 0.5, 0.7, 0.9, 0.97)


@functools.cache
def windows(text: str, size: int) -> set[tuple[str, ...]]:
    return set(reference.windows(text, False, size, size))


def jaccard(first: str, second: str, size: int) -> float:
    a, b = windows(first, size), windows(second, size)
    return len(a & b) / len(a | b) if a | b else 0.0


@pytest.fixture(scope="module")
def bench(shared_bench):
    draw = random.Random(1)
    items = [" ".join(draw.choices(WORDS, k=200)) for _ in range(12)]
    rows = [
        {"id": f"{n}-{target}", "text": near_copy(text, target, "other")}
        for n, text in enumerate(items)
        for target in TARGETS
    ]
    # An item within a long document: all of its windows, and little of the document.
    long = " ".join(draw.choices(WORDS, k=2000))
    rows += [{"id": "long", "text": f"{long} {items[0]}"}, {"id": "short", "text": "one two three"}]
    shared_bench.jsonl("in.jsonl", rows)
    shared_bench.jsonl("items.jsonl", [{"id": f"i{n}", "text": t} for n, t in enumerate(items)])
    shared_bench.jsonl("short.jsonl", [{"id": "s", "text": "one two three"}])
    shared_bench.rows_of, shared_bench.items_of = rows, items
    return shared_bench


def decontaminate(bench, out="out", **settings):
    step = {"evals": [str(bench.folder / "items.jsonl")], "mode": "jaccard", **settings}
    bench.run([{"decontaminate": step}], bench.folder / "in.jsonl", out=out)
    return {row["id"]: (row["partner_id"], row["similarity"]) for row in bench.decisions(out)}


@pytest.mark.parametrize(
    ("ngram", "threshold"),
    [(None, None), (5, 0.6), pytest.param(3, 0.95, marks=pytest.mark.slow)],
)
def test_near_duplicates_of_items_go_as_plain_python_says(bench, ngram, threshold):
    given = {"ngram": ngram, "threshold": threshold}
    dropped = decontaminate(bench, f"out-{ngram}", **{k: v for k, v in given.items() if v})
    wanted = {}
    for row in bench.rows_of:
        similar = [jaccard(item, row["text"], ngram or 13) for item in bench.items_of]
        if max(similar) >= (threshold or 0.8):
            nearest = similar.index(max(similar))
            wanted[row["id"]] = (f"i{nearest}", pytest.approx(max(similar)))
    assert dropped == wanted and 12 <= len(wanted) <= 36


def test_an_item_within_a_longer_document_is_found_by_windows_and_is_no_near_duplicate(bench):
    assert "long" not in decontaminate(bench, "near", threshold=0.3)
    windows = {"mode": "overlap"}
    assert decontaminate(bench, "windows", **windows)["long"][1] == 1.0


def test_an_item_shorter_than_an_ngram_is_reported_as_unchecked(bench):
    step = Decontaminate(evals=(str(bench.folder / "short.jsonl"),), mode="jaccard")
    assert "1 shorter than 13 not checked" in step.forecast()[0]


def test_a_near_duplicate_is_not_cut():
    with pytest.raises(ValidationError, match="drops whole documents"):
        Decontaminate(evals=("a",), mode="jaccard", action="cut")
