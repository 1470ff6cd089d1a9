"""`keep: none` drops every member of a duplicate cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from curate.inspect.explain import explain
from curate.refresh.incremental import check
from curate.steps.recipe import compose
from llmcurate.base.errors import UsageError

SAME = "The river runs past the mill and the stone house by the bridge, all winter long."
ALONE = "A text that nobody has copied and that shares nothing with those beside it at all."
ROWS = [
    {"id": "a", "text": SAME, "url": "https://x.test/1"},
    {"id": "b", "text": ALONE, "url": "https://x.test/2"},
    {"id": "c", "text": SAME, "url": "https://x.test/3"},
    {"id": "d", "text": f"{ALONE[:-1]}, but for one more word", "url": "https://x.test/2"},
    {"id": "e", "text": SAME, "url": "https://x.test/4"},
]


@pytest.mark.parametrize("key", ["text", "url"])
def test_only_documents_with_a_unique_key_are_kept(bench, key):
    source = bench.jsonl("in.jsonl", ROWS)
    bench.run([{"dedup_exact": {"key": key, "keep": "none"}}], source)
    count = Counter(row[key] for row in ROWS)
    assert bench.ids() == [row["id"] for row in ROWS if count[row[key]] == 1]


@pytest.mark.parametrize("settings", [{}, {"verify": 0.5}])
def test_minhash_drops_the_clusters_that_it_keeps_one_of(bench, settings):
    source = bench.jsonl("in.jsonl", ROWS)
    bench.run([{"dedup_minhash": settings}], source, out="one")
    bench.run([{"dedup_minhash": {**settings, "keep": "none"}}], source, out="none")
    size = {row["id"]: row["attributes"]["dedup_minhash.cluster_size"]
            if "attributes" in row else row["dedup_minhash.cluster_size"]
            for row in bench.rows("one")}  # fmt: skip
    assert bench.ids("none") == [name for name, members in size.items() if members == 1]


def test_every_duplicate_has_a_partner_and_explain_says_that_none_is_kept(bench):
    bench.run([{"dedup_exact": {"keep": "none"}}], bench.jsonl("in.jsonl", ROWS))
    decisions = bench.decisions("out")
    assert {d["id"] for d in decisions} == {"a", "c", "e"}
    assert all(d["partner_id"] not in (None, d["id"]) for d in decisions)
    said = str(explain([bench.folder / "out"], "a"))
    assert "no duplicate is kept" in said and "None" not in said


def test_with_keep_none_duplicates_of_each_other_and_of_earlier_documents_are_dropped(
    bench, tmp_path, monkeypatch
):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    earlier = bench.jsonl("old.jsonl", [{"id": "z", "text": ALONE}])
    step = {"dedup_exact": {"keep": "none", "against": [str(earlier)]}}
    bench.run([step], bench.jsonl("in.jsonl", ROWS))
    assert bench.ids() == ["d"]


def test_keep_one_has_the_identity_of_the_default_step():
    old, new = (compose("x", [("dedup_exact", s)]).steps[0] for s in ({}, {"keep": "one"}))
    assert "keep" not in old.identity().settings and old.identity() == new.identity()


@pytest.mark.parametrize("step", ["dedup_exact", "dedup_minhash"])
def test_a_refresh_refuses_it(step):
    with pytest.raises(UsageError, match="keep: none a new duplicate would drop documents"):
        check(compose("x", [(step, {"keep": "none"})]))
