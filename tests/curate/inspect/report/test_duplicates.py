"""Copies in the report: sizes of clusters, similarities, pairs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from curate.inspect.report import duplicates
from curate.inspect.report.duplicates import Method
from curate.inspect.report.store import opened
from llmcurate.base.messages import json_values

WORDS = [f"word{i}" for i in range(200)]


def variant(changed: int, offset: int = 0) -> str:
    words = list(WORDS)
    for i in range(changed):
        words[i * 7 + 3] = f"other{i + offset}"
    return " ".join(words) + "."


@pytest.fixture(scope="module")
def methods(shared_bench: Any) -> list[Method]:
    texts = [variant(0)] * 3 + [variant(1), variant(2), variant(4)]
    texts += ["nothing like the others <b>"]
    source = shared_bench.jsonl(
        "in.jsonl", [{"id": f"d{i}", "text": t} for i, t in enumerate(texts)]
    )
    steps = [{"dedup_exact": {}}, {"dedup_minhash": {"verify": 0.5, "bands": 50, "rows": 2}}]
    shared_bench.run(steps, source)
    with opened(shared_bench.folder / "out") as store:
        assert store is not None
        return [*duplicates.gather(store).values()]


def test_clusters_are_counted_by_size_and_method(methods: list[Method]) -> None:
    exact, near = methods
    assert (exact.name, exact.clusters, exact.members, exact.sizes) == ("exact:text", 1, 3, {3: 1})
    assert (near.clusters, near.members, near.sizes) == (1, 4, {4: 1})
    assert near.largest[0][0] == 4


def test_pairs_hold_both_texts_the_least_similar_first(methods: list[Method]) -> None:
    exact, near = methods
    assert len(exact.pairs) == 1 and exact.pairs[0].text == exact.pairs[0].other
    assert near.pairs[0].similarity == min(p.similarity for p in near.pairs)
    assert all(p.text and p.other and p.text != p.other for p in near.pairs)


def test_similarities_are_counted_between_the_least_and_the_most(methods: list[Method]) -> None:
    exact, near = methods
    assert exact.similarity is None and near.similarity is not None
    assert near.similarity.counts.sum() == 3
    assert near.similarity.edges[0] <= near.pairs[0].similarity < near.similarity.edges[-1]


def test_the_page_shows_them_side_by_side(methods: list[Method], shared_bench: Any) -> None:
    page = (shared_bench.folder / "out" / "report.html").read_text()
    assert "<del>" in page and "<ins>" in page and "class=sides" in page


def test_figures_of_duplicates_are_in_the_record(shared_bench: Any, methods: list[Method]) -> None:
    from curate.run.records import read_record

    figures = read_record(Path(shared_bench.folder / "out"))["figures"]
    assert figures["duplicates"]["minhash"]["dropped"] == 3
    assert figures["duplicates"]["exact:text"]["sizes"] == {"3": 1}


def test_passages_that_were_cut_are_not_called_documents(bench: Any) -> None:
    shared = "This line stands on both of these pages and on no other."
    own = "goes on in its own way."
    rows = [{"id": f"p{i}", "text": f"{shared}\nPage {i} {own}"} for i in range(2)]
    steps = [{"dedup_passages": {"min_sentences": 0}}, {"dedup_exact": {}}]
    bench.run(steps, bench.jsonl("in.jsonl", rows))
    with opened(bench.folder / "out") as store:
        assert store is not None
        (lines,) = duplicates.gather(store).values()
    assert (lines.passages, lines.members, json_values(lines)["of"]) == (True, 2, "passages")
    page = (bench.folder / "out" / "report.html").read_text()
    assert "2 passages; 1 duplicate cut" in page
