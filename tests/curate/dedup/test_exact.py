"""Exact duplicates: which documents match, which one is kept, and the recorded decisions."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from llmcurate.base.errors import LlmcurateError, UsageError
from tests.parameters import few

DATE = "2020-01-0{}T00:00:00Z"
COPIES = [
    {"id": "b", "text": "Same  text", "url": "https://a.test/1", "date": DATE.format(1)},
    {"id": "a", "text": "same text", "url": "http://www.a.test/1/", "date": DATE.format(3)},
    {"id": "c", "text": "SAME TEXT ", "url": "https://a.test/1?utm_x=1", "date": DATE.format(2)},
    {"id": "d", "text": "another", "url": "https://b.test/1"},
]


def decide(bench, rows: list[dict[str, Any]], out: str = "out", **settings: Any) -> list[str]:
    """Ids that stay of the rows."""
    source = bench.jsonl(f"{out}.jsonl", rows)
    bench.run([{"dedup_exact": settings}], source, out=out)
    return sorted(bench.ids(out))


def test_only_equal_texts_match_unless_normal_forms_are_asked_for(bench):
    assert decide(bench, COPIES, "plain") == ["a", "b", "c", "d"]
    assert decide(bench, COPIES, "normal", normalize=True) == ["b", "d"]


def test_urls_match_in_their_normal_form_unless_told_otherwise(bench):
    assert decide(bench, COPIES, "normal", key="url", survivor="newest") == ["a", "d"]
    assert decide(bench, COPIES, "plain", key="url", normalize=False) == ["a", "b", "c", "d"]


def test_empty_texts_and_absent_urls_match_nothing(bench):
    rows = [{"id": str(i), "text": ""} for i in range(3)] + [{"id": "s", "text": " "}]
    assert decide(bench, rows, "text") == ["0", "1", "2", "s"]
    rows = [{"id": str(i), "text": "t", "url": u} for i, u in enumerate([None, "", None, ""])]
    assert decide(bench, rows, "url", key="url") == ["0", "1", "2", "3"]


def test_documents_without_a_url_are_noted(bench):
    rows = [{"id": str(i), "text": "t", "url": u} for i, u in enumerate([None, "http://a.b", ""])]
    bench.run([{"dedup_exact": {"key": "url"}}], bench.jsonl("in.jsonl", rows))
    notices = json.loads((bench.folder / "out/run.json").read_text())["notices"]
    assert any("dedup_exact: 2 of 3 documents without a URL" in notice for notice in notices)


def test_decisions_have_the_columns_of_the_contract(bench):
    decide(bench, COPIES, key="url", survivor="newest")
    schema = pq.read_schema(bench.folder / "out/decisions.parquet")
    names = "id cluster kept_id partner_id similarity method span_start span_end"
    assert schema.names == names.split()
    rows = {d["id"]: d for d in bench.decisions()}
    assert set(rows) == {"a", "b", "c"}
    assert {d["cluster"] for d in rows.values()} == {0}
    assert {d["kept_id"] for d in rows.values()} == {"a"}
    assert (rows["a"]["partner_id"], rows["a"]["similarity"]) == (None, None)
    assert (rows["b"]["partner_id"], rows["b"]["similarity"]) == ("a", 1.0)
    assert {d["method"] for d in rows.values()} == {"exact:url"}
    assert all(d["span_start"] is None and d["span_end"] is None for d in rows.values())


def test_the_reason_names_the_partner(bench):
    decide(bench, COPIES, key="url", survivor="newest")
    for row in bench.rows("out", "rejected"):
        assert (row["step"], row["rule"], row["detail"]) == ("dedup_exact", "same_url", "a")
        assert (row["value"], row["threshold"]) == (1.0, 1.0)


def row(name: str, size: int, day: int | None, source: str, score: Any) -> dict[str, Any]:
    """All of one text in normal form; size: blanks in it."""
    date = None if day is None else DATE.format(day)
    text = "same" + " " * size + "text"
    return {"id": name, "text": text, "date": date, "source": source, "score": score}


ROWS = [
    row("a", 2, None, "web", float("nan")),
    row("b", 5, 3, "web", 0.5),
    row("c", 5, 1, "books", None),
    row("d", 1, 3, "news", 2.5),
    row("e", 1, 2, "books", -1.0),
]
POLICIES = {
    "longest": "b",
    "newest": "b",
    "best:score": "d",
    "prefer-source:books,news": "c",
    "prefer-source:news": "d",
    "prefer-source:none": "b",
}


@pytest.mark.parametrize(
    "policy",
    few(POLICIES, "longest", "newest", "best:score", "prefer-source:books,news"),
)
def test_the_survivor_is_the_same_whatever_the_order_and_the_files(bench, policy):
    orders = [ROWS[::-1], [ROWS[i] for i in (2, 4, 1, 0, 3)]]
    for number, rows in enumerate(orders):
        half = number + 1
        first = bench.jsonl(f"{number}/x.jsonl", rows[:half])
        second = bench.jsonl(f"{number}/a.jsonl", rows[half:])
        out = f"out-{number}"
        steps = [{"dedup_exact": {"normalize": True, "survivor": policy}}]
        bench.run(steps, first, second, out=out)
        assert bench.ids(out) == [POLICIES[policy]]


@pytest.mark.parametrize(
    ("policy", "present", "kept"),
    [("newest", "ac", "c"), ("best:score", "ac", "a"), ("best:score", "ace", "e")],
)
def test_null_and_nan_are_preferred_last(bench, policy, present, kept):
    rows = [r for r in ROWS if r["id"] in present]
    assert decide(bench, rows, normalize=True, survivor=policy) == [kept]


def test_first_follows_the_order_of_the_inputs(bench):
    first, second = bench.jsonl("z.jsonl", ROWS[:1]), bench.jsonl("a.jsonl", ROWS[1:])
    steps = [{"dedup_exact": {"normalize": True, "survivor": "first"}}]
    for number, inputs in enumerate(itertools.permutations([first, second])):
        bench.run(steps, *inputs, out=f"out-{number}")
    assert bench.ids("out-0") == ["a"]
    assert bench.ids("out-1") == ["b"]


def test_two_dedup_steps_decide_one_after_the_other(bench):
    rows = [
        {"id": "a", "text": "one", "url": "u1", "date": DATE.format(2)},
        {"id": "b", "text": "two", "url": "u1", "date": DATE.format(1)},
        {"id": "c", "text": "one", "url": "u2"},
        {"id": "d", "text": "two", "url": "u3"},
    ]
    steps = [{"dedup_exact": {"key": "url", "survivor": "newest"}}, "dedup_exact"]
    bench.run(steps, bench.jsonl("in.jsonl", rows))
    assert bench.ids() == ["a", "d"]
    assert [(r["id"], r["step"]) for r in bench.rows("out", "rejected")] == [
        ("b", "dedup_exact"),
        ("c", "dedup_exact#2"),
    ]
    assert [(d["method"], d["id"]) for d in bench.decisions()] == [
        ("exact:url", "a"),
        ("exact:url", "b"),
        ("exact:text", "a"),
        ("exact:text", "c"),
    ]


def test_a_column_that_cannot_be_compared_is_wrong_use(bench):
    with pytest.raises(LlmcurateError, match="survivor column 'quality' not found") as missing:
        decide(bench, COPIES, "missing", survivor="best:quality")
    assert missing.value.exit_code == 2
    with pytest.raises(LlmcurateError, match="does not hold numbers") as words:
        decide(bench, COPIES, "words", survivor="best:url")
    assert words.value.exit_code == 2


@pytest.mark.parametrize("policy", ["best", "best:", "prefer-source:", "oldest", ""])
def test_an_unknown_policy_is_wrong_use(bench, policy):
    with pytest.raises(UsageError, match="unknown survivor policy"):
        decide(bench, COPIES, survivor=policy)
