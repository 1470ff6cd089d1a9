"""The report's pages on duplicates: notes, earlier corpora, unknown partners."""

from __future__ import annotations

from typing import Any

from curate.inspect.report.duplicates import Method, Pair
from curate.inspect.report.page import Figures, RunPage

CURVE = {
    "title": "False positives",
    "x_label": "documents",
    "y_label": "rate",
    "x": [0.0, 1.0, 2.0],
    "y": [0.0, 0.01, 0.04],
    "mark": [1.0, 0.01, "this <run>"],
}


def page(decided: dict[str, Any], *methods: Method) -> str:
    stages = [{"decides": "dedup_bloom", "decided": decided}, {"decided": None}]
    figures = Figures(duplicates={m.name: m for m in methods})
    return RunPage({"stages": stages}, figures).chapter("duplicates")


def test_notes_and_curves_of_a_dedup_are_shown() -> None:
    html = page({"dropped": 3, "notes": ["A filter of <1 GB> was enough."], "curves": [CURVE]})
    assert "How dedup_bloom decided" in html
    assert "A filter of &lt;1 GB&gt; was enough." in html
    assert "False positives: rate over documents; point: this &lt;run&gt;" in html
    assert html.count("<svg") == 1 and "could not be drawn" not in html


def test_duplicates_in_earlier_corpora_are_counted_by_corpus() -> None:
    html = page({"against": {"january": 7, "february": 0}})
    assert "january" in html and ">7<" in html and "february" in html


def test_a_method_that_knows_no_partners_says_so_and_claims_no_clusters() -> None:
    html = page({}, Method("bloom", unknown=12, passages=True))
    assert "12 passages cut, seen before" in html
    assert "clusters with" not in html
    html = page({}, Method("bloom", unknown=12, unknown_whole=5, passages=True))
    assert "7 passages cut and 5 documents dropped, seen before;" in html


def test_a_cluster_without_a_kept_document_says_so() -> None:
    largest = [(3, None), (2, "a")]
    html = page({}, Method("paragraphs", 2, 5, dropped=4, sizes={2: 2}, largest=largest))
    assert "3 (none is kept), 2 (" in html and "None" not in html


def test_pairs_of_one_url_claim_no_similarity_of_their_texts() -> None:
    pair = Pair("a", "b", 1.0, "one text of the page", "another text of the page")
    for name, claim in (("exact:url", "the same URL: "), ("exact:text", "similarity 1.000: ")):
        html = page({}, Method(name, 1, 2, dropped=1, sizes={2: 1}, pairs=[pair]))
        assert claim in html and "<del>one </del>" in html


def test_a_run_without_duplicates_has_no_chapter_on_them() -> None:
    assert page({"seconds": 0.1, "clusters": 0}).strip() == ""
