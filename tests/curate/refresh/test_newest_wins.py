"""Newer versions of a page replace the older ones of earlier refreshes."""

from __future__ import annotations

from curate.inspect.explain import explain
from curate.run.homes import runs_that_read
from tests.curate.refresh.growing import Home

STEPS = [{"dedup_exact": {"key": "url", "survivor": "newest"}}]


def page(name: str, url: str, day: int | None) -> dict[str, str]:
    row = {"id": name, "url": f"https://h.test/{url}", "text": f"Version {name}."}
    return row | ({"date": f"2026-01-{day:02d}"} if day else {})


def test_the_newest_version_is_the_one_in_the_next_snapshot(bench):
    january = [page("a1", "a", 1), page("b1", "b", 5), page("c1", "c", None), page("d1", "d", 3)]
    february = [page("a2", "a", 2), page("b2", "b", 4), page("c2", "c", 1), page("d2", "d", 3)]
    march = [page("a3", "a/", 9), page("b3", "b", 9), page("e1", "e", 1), page("a4", "a", 7)]
    home = Home(bench, STEPS)
    files = [bench.jsonl(f"{n}.jsonl", r) for n, r in enumerate((january, february, march))]
    home.refresh(files[0])
    second = home.refresh(files[1])
    # Of equal dates what is there stays; what has no date goes for what has one.
    assert sorted(home.ids()) == ["a2", "b1", "c2", "d1"]
    assert second.superseded == 2 and second.forgotten == 0
    assert "2 older versions replaced" in second.line()
    gone = home.removed()
    assert [(r["id"], r["by"]) for r in gone] == [("a1", "superseded"), ("c1", "superseded")]
    account = str(explain([*runs_that_read(home.path, "a1")], "a1"))
    assert account.startswith("a1: replaced by a newer version\n")
    assert f"gone since snapshot {second.name}" in account
    third = home.refresh(files[2])
    assert sorted(home.ids()) == ["a3", "b3", "c2", "d1", "e1"]
    assert sorted(home.ids(second.name)) == ["a2", "b1", "c2", "d1"]  # which is never changed
    bench.run(STEPS, *files, out="whole")
    assert sorted(bench.ids("whole")) == sorted(home.ids())
    rejected = bench.rows(f"home/runs/{third.name}", "rejected")
    assert [(r["id"], r["detail"]) for r in rejected] == [("a4", "a3")]
