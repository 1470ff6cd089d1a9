"""The score counts what was done to planted pages, by which step, and what else was dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from curate.demo.demonstration import STEPS, WANTED, Result, Row, format_table, score
from curate.demo.web import WEB, Page, read_truth


def record(name: str, kind: str, expect: str, cluster: str | None = None, **more: Any) -> Page:
    values = {"similarity": None, "planted": {}, "source_id": None, **more}
    names = dict.fromkeys(("url", "lang", "charset", "declared", "warc"), "")
    return Page(id=name, kind=kind, expect=[expect], cluster=cluster, **names, **values)


def pii(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "value": value}


PASSAGE = "A passage of both."
TRUTH = [
    record("plain", "clean", "kept"),
    record("other", "clean", "kept"),
    record("a", "clean", "kept", "text-01"),
    record("a1", "exact_dup", "dropped:exact_text", "text-01"),
    record("a2", "exact_dup", "dropped:exact_text", "text-01"),
    record("u", "clean", "kept", "url-01"),
    record("u-old", "url_dup", "dropped:exact_url", "url-01"),
    record("n", "clean", "kept", "near-01"),
    record("n-near", "near_dup", "dropped:near", "near-01", similarity=0.9),
    record("m", "clean", "kept", "near-02"),
    record("m-near", "near_dup", "dropped:near", "near-02", similarity=0.5),
    record("menu", "boilerplate", "dropped:quality"),
    record("menu2", "boilerplate", "dropped:quality"),
    record("thai", "wrong_language", "dropped:language"),
    record("casino", "blocked_url", "dropped:url"),
    record(
        "shared",
        "substring_dup",
        "cut:substring",
        "passage-01",
        source_id="plain",
        planted={"passage": PASSAGE},
    ),
    record(
        "mail",
        "pii",
        "replaced:pii",
        planted={"pii": [pii("email", "a@b.example"), pii("ip", "8.8.8.8"), pii("ip", "10.0.0.1")]},
    ),
]
PERFECT = {
    "a1": ("dedup_exact#2", "same_text"),
    "a2": ("dedup_exact#2", "same_text"),
    "u-old": ("dedup_exact", "same_url"),
    "n": ("dedup_minhash", "near_duplicate"),
    "menu": ("c4", "few_sentences"),
    "menu2": ("gopher_quality", "few_words"),
    "thai": ("language", "language"),
    "casino": ("url_filter", "domain"),
}
MAIL = "Write to email@example.com, not to 10.0.0.1 or 192.0.2.1."
SPANS = {"mail": {"email": 1, "ip": 1}}


def rows(
    rejected: Mapping[str, tuple[str, str]],
    mail: str = MAIL,
    replaced: Mapping[str, Mapping[str, int]] = SPANS,
    holders: tuple[str, ...] = ("plain",),
    cut: frozenset[str] = frozenset({"shared"}),
) -> dict[str, Row]:
    kept = {r.id: mail for r in TRUTH if r.id not in rejected}
    kept |= {n: f"Before it. {PASSAGE} After it." for n in holders if n not in rejected}
    scored = score(TRUTH, Result(kept, rejected, replaced, cut), {0.9: 0.99, 0.5: 0.05})
    return {r.kind: r for r in scored}


def test_a_perfect_run_has_full_recall_and_precision() -> None:
    scored = rows(PERFECT)
    assert {k: r.recall for k, r in scored.items() if r.recall < 1} == {"near_dup 0.50": 0.0}
    assert all(r.precision in (None, 1.0) for r in scored.values())
    assert scored["near_dup 0.50"].expected == 0.05


def test_the_score_names_the_steps_that_dropped_documents() -> None:
    assert rows(PERFECT)["boilerplate"].by == {"c4": 1, "gopher_quality": 1}


@pytest.mark.parametrize("survivor", ["a", "a1", "a2"])
def test_any_one_survivor_of_a_cluster_is_right(survivor: str) -> None:
    rejected = {k: v for k, v in PERFECT.items() if not k.startswith("a")}
    rejected |= {i: ("dedup_exact", "same_text") for i in ("a", "a1", "a2") if i != survivor}
    scored = rows(rejected)
    assert (scored["exact_dup"].recall, scored["exact_dup"].precision) == (1.0, 1.0)
    assert scored["clean"].recall == 1.0


def test_a_cluster_without_survivor_costs_precision_and_the_original() -> None:
    scored = rows({**PERFECT, "a": ("dedup_exact", "same_text")})
    assert scored["exact_dup"].precision == pytest.approx(2 / 3)
    assert scored["clean"].done == scored["clean"].planted - 1


def test_dropping_both_documents_of_a_near_duplicate_pair_costs_precision() -> None:
    scored = rows({**PERFECT, "n-near": ("dedup_minhash", "near_duplicate")})
    assert (scored["near_dup 0.90"].recall, scored["near_dup 0.90"].precision) == (1.0, 0.5)


def test_a_document_dropped_by_a_step_for_something_else_is_missed() -> None:
    scored = rows({**PERFECT, "thai": ("gopher_quality", "stop_words")})
    assert (scored["wrong_language"].done, scored["wrong_language"].recall) == (0, 0.0)
    assert scored["boilerplate"].precision == 1.0  # it was junk all the same


@pytest.mark.parametrize("holders", [(), ("plain", "shared")])
def test_a_passage_must_stay_exactly_once(holders: tuple[str, ...]) -> None:
    assert rows(PERFECT, holders=holders)["substring_dup"].recall == 0.0
    assert rows(PERFECT, holders=("shared",))["substring_dup"].recall == 1.0


def test_a_cut_in_a_page_that_shares_nothing_costs_precision() -> None:
    scored = rows(PERFECT, cut=frozenset({"shared", "m", "other"}))
    assert scored["substring_dup"].precision == pytest.approx(2 / 3)


def test_a_clean_document_dropped_costs_the_step_precision() -> None:
    scored = rows({**PERFECT, "plain": ("c4", "few_sentences")})
    assert scored["boilerplate"].precision == 3 / 4  # of a menu, a menu, a Thai page and this one
    assert scored["clean"].done == scored["clean"].planted - 1


def test_the_newest_crawl_must_survive() -> None:
    rejected = {k: v for k, v in PERFECT.items() if k != "u-old"}
    scored = rows(rejected | {"u": ("dedup_exact", "same_url")})
    assert (scored["url_dup"].recall, scored["url_dup"].precision) == (0.0, 0.0)


def test_personal_data_must_be_gone_and_private_addresses_stay() -> None:
    scored = rows(PERFECT)
    assert (scored["pii: email"].planted, scored["pii: ip"].planted) == (1, 1)
    unchanged = rows(PERFECT, mail="a@b.example and 10.0.0.1", replaced={"mail": {"ip": 2}})
    assert unchanged["pii: email"].recall == 0.0
    assert (unchanged["pii: ip"].recall, unchanged["pii: ip"].precision) == (1.0, 0.5)


def test_a_dropped_page_does_not_count_as_replaced() -> None:
    assert rows({**PERFECT, "mail": ("c4", "few_sentences")}, replaced={})["pii: ip"].recall == 0.0


def test_unknown_documents_are_ignored() -> None:
    scored = rows({**PERFECT, "robots": ("c4", "few_sentences")})
    assert all(r.precision in (None, 1.0) for r in scored.values())


def test_the_table_has_a_line_a_row_and_says_what_its_columns_mean() -> None:
    scored = list(rows(PERFECT).values())
    lines = format_table(scored).splitlines()
    assert lines[0].split()[:3] == ["planted", "what", "should"]
    assert len(lines) == len(scored) + 2 and "recall:" in lines[-1]
    assert any(line.startswith("near dup 0.90") and "one of the two kept" in line for line in lines)


def test_every_expectation_of_the_truth_has_words() -> None:
    assert set(STEPS) <= set(WANTED)
    assert {page.expect[0] for page in read_truth(WEB / "truth.jsonl")} == set(WANTED)
