"""`keep: none`: all members of a cluster of copies go, as plain Python counts them."""

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
def test_documents_stay_whose_key_stands_once(bench, key):
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


def test_every_member_has_a_partner_and_no_copy_is_said_to_stay(bench):
    bench.run([{"dedup_exact": {"keep": "none"}}], bench.jsonl("in.jsonl", ROWS))
    decisions = bench.decisions("out")
    assert {d["id"] for d in decisions} == {"a", "c", "e"}
    assert all(d["partner_id"] not in (None, d["id"]) for d in decisions)
    said = str(explain([bench.folder / "out"], "a"))
    assert "no copy stays" in said and "None" not in said


def test_new_documents_go_with_each_other_and_with_earlier_ones(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("LLMCURATE_CACHE", str(tmp_path / "cache"))
    earlier = bench.jsonl("old.jsonl", [{"id": "z", "text": ALONE}])
    step = {"dedup_exact": {"keep": "none", "against": [str(earlier)]}}
    bench.run([step], bench.jsonl("in.jsonl", ROWS))
    assert bench.ids() == ["d"]


def test_one_copy_kept_is_the_same_step_as_before():
    old, new = (compose("x", [("dedup_exact", s)]).steps[0] for s in ({}, {"keep": "one"}))
    assert "keep" not in old.identity().settings and old.identity() == new.identity()


@pytest.mark.parametrize("step", ["dedup_exact", "dedup_minhash"])
def test_a_refresh_refuses_it(step):
    with pytest.raises(UsageError, match="keep: none a new copy drops documents"):
        check(compose("x", [(step, {"keep": "none"})]))
