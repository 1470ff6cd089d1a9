"""The newest version stays, and the report says how old the others were."""

from __future__ import annotations

import json
from typing import Any

BASE = "The mill on the river was built of stone and wood by the people of the valley long ago"


def versions(pages: int = 8) -> list[dict[str, Any]]:
    """Pages at three points in time; every second one moved to another URL meanwhile."""
    rows = []
    for page in range(pages):
        words = f"{BASE} and page {page} tells of it in words number {page * 7} and {page * 11}"
        for nth, year in enumerate((2014, 2020, 2026)):
            url = f"https://h.test/{page}" if page % 2 else f"https://h.test/{page}/{nth}"
            text = " ".join([words] * 3 + [f"Edited in {year}."])
            date = f"{year}-0{page % 9 + 1}-01T00:00:00Z"
            rows.append({"id": f"p{page}-{year}", "text": text, "url": url, "date": date})
    return rows


def test_newest_keeps_the_last_version_of_each_url_and_each_near_duplicate(bench):
    from curate.dedup import methods

    steps = [{name: settings} for name, settings in methods.steps_of("newest")]
    steps[1]["dedup_minhash"]["verify"] = 0.8
    bench.run(steps, bench.jsonl("in.jsonl", versions()))
    assert bench.ids() == [f"p{page}-2026" for page in range(8)]


def test_the_report_counts_how_much_older_the_dropped_duplicates_are(bench):
    step = {"dedup_exact": {"key": "url", "survivor": "newest"}}
    twins = [{**versions()[0], "id": f"twin{n}", "url": "https://h.test/twin"} for n in range(2)]
    bench.run([step], bench.jsonl("in.jsonl", versions() + twins))
    ages = json.loads((bench.folder / "out/run.json").read_text())["figures"]["ages"]
    assert (ages["older"], ages["same"], ages["newer"], ages["undated"]) == (8, 1, 0, 0)
    assert sum(ages["days"]["counts"]) == 9
    assert {p: (k, g) for p, k, g in ages["periods"]}["2026-02"] == (1, 0)
    page = (bench.folder / "out/report.html").read_text()
    assert "8 are older than the one that is kept" in page


def test_another_policy_has_no_chapter_on_ages(bench):
    bench.run([{"dedup_exact": {"key": "url"}}], bench.jsonl("in.jsonl", versions()))
    assert "ages" not in json.loads((bench.folder / "out/run.json").read_text())["figures"]


def test_duplicates_without_a_date_are_counted_as_undated(bench):
    rows = versions()
    for row in rows:
        if row["id"].endswith("2014"):
            del row["date"]
    bench.run([{"dedup_exact": {"key": "url", "survivor": "newest"}}], bench.jsonl("i.jsonl", rows))
    ages = json.loads((bench.folder / "out/run.json").read_text())["figures"]["ages"]
    assert (ages["older"], ages["undated"]) == (4, 4)
    assert ["no date", 4, 4] in ages["periods"]
