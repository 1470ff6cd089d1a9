"""Freshness by source, in the report and in `stats`; opt-outs by month and agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from curate.inspect.report.documents import by_source
from llmcurate.base.disk.database import scratch_database

LENGTH = {"document_length": {"unit": "chars", "min": 1}}


def row(number: int, date: str | None, source: str = "wiki", url: int | None = None) -> dict:
    """A document of a source and a day."""
    where = {} if url is None else {"url": f"https://h.test/{url}"}
    when = {"date": date} if date else {}
    return {"id": f"d{number}", "text": f"The text {number}.", "source": source, **where, **when}


def crawl() -> list[dict[str, Any]]:
    """A source of 2023 with one late page, and one without dates that has each page twice."""
    days = [f"2023-{1 + n % 9:02d}-15" for n in range(180)]
    late = [row(180, "2025-01-01")]
    undated = [row(200 + n, None, "dump", url=n // 2) for n in range(20)]
    return [*(row(n, day) for n, day in enumerate(days)), *late, *undated]


EXPECTED = {
    None: (201, 181, "2023-01-15", "2023-05-15", "2025-01-01", "2023-09", 10, 10),
    "wiki": (181, 181, "2023-01-15", "2023-05-15", "2025-01-01", "2023-09", 0, 0),
    "dump": (20, 0, None, None, None, None, 10, 10),
}


def figures(sources: list[dict[str, Any]]) -> dict[Any, tuple]:
    """The figures by source."""
    return {source.pop("name"): tuple(source.values()) for source in sources}


def test_report_and_stats_say_the_same_of_each_source(bench) -> None:
    path = bench.jsonl("in.jsonl", crawl())
    bench.run([LENGTH], path)
    report = json.loads((bench.folder / "out/run.json").read_text())["figures"]["freshness"]
    assert figures(report) == EXPECTED
    stats = bench.command("stats", path, "--json", "-o", "stats")
    assert figures(json.loads(stats.stdout.splitlines()[-1])["freshness"]) == EXPECTED
    for page in ("out/report.html", "stats/stats.html"):
        assert "<h2>Freshness</h2>" in (bench.folder / page).read_text()
    assert "2023-05-15" in bench.command("stats", path).stdout


@pytest.mark.parametrize(("late", "cutoff"), [(9, "2023-03"), (10, "2025-01")])
def test_the_cutoff_is_the_newest_month_with_a_tenth_of_the_fullest(
    tmp_path, late: int, cutoff: str
) -> None:
    values = ", ".join(
        f"(TIMESTAMPTZ '{day} 00:00:00+00', 'a', NULL)"
        for day in ["2023-03-01"] * 100 + ["2025-01-01"] * late + ["2023-01-01"] * 50
    )
    with scratch_database(tmp_path / "spill") as db:
        (all_of_them,) = by_source(db, f"(VALUES {values}) docs(date, source, url)")
    assert all_of_them.cutoff == cutoff and all_of_them.name is None


def test_a_corpus_without_dates_and_versions_has_no_chapter(bench) -> None:
    bench.run([LENGTH], bench.jsonl("in.jsonl", [row(n, None, url=n) for n in range(9)]))
    assert "freshness" not in json.loads((bench.folder / "out/run.json").read_text())["figures"]
    assert "Freshness" not in (bench.folder / "out/report.html").read_text()


@pytest.mark.parametrize(("dated", "said"), [(0, "none of 6 documents has a date"), (2, "4 of 6")])
def test_a_survivor_by_date_says_that_dates_are_missing(bench, dated: int, said: str) -> None:
    rows = [row(n, "2023-01-01" if n < dated else None, url=n // 2) for n in range(6)]
    bench.jsonl("in.jsonl", rows)
    line = ["dedup", "in.jsonl", "--method", "exact", "--key", "url", "-o", "out"]
    done = bench.command(*line, "--survivor", "newest")
    assert done.returncode == 0, done.stderr
    assert "note: dedup_exact: " in done.stdout and said in done.stdout
    assert said in (bench.folder / "out/report.html").read_text()


@pytest.mark.parametrize("policy", ["longest", "newest"])
def test_no_notice_if_dates_do_not_decide_or_none_is_missing(bench, policy: str) -> None:
    date = "2023-01-01" if policy == "newest" else None
    path = bench.jsonl("in.jsonl", [row(n, date, url=n // 2) for n in range(6)])
    bench.run([{"dedup_exact": {"key": "url", "survivor": policy}}], path)
    assert json.loads((bench.folder / "out/run.json").read_text())["notices"] == []


def test_opt_outs_are_counted_by_month_and_agent(bench) -> None:
    rows = [row(n, f"2024-0{1 + n % 2}-10") for n in range(8)] + [row(8, None)]
    said = {
        0: "x-robots-tag: noai", 1: "x-robots-tag: gptbot: noindex",
        3: "x-robots-tag: GPTBot: noai", 5: "tdm-reservation: 1", 8: "x-robots-tag: noai",
    }  # fmt: skip
    for number, headers in said.items():
        rows[number]["opt_out_headers"] = headers
    bench.run([{"opt_out": {}}, LENGTH], bench.jsonl("in.jsonl", rows))
    counted = json.loads((bench.folder / "out/run.json").read_text())["figures"]["opt_outs"]
    assert counted["periods"] == [["2024-01", 4, 1], ["2024-02", 4, 3], ["no date", 1, 1]]
    assert counted["agents"] == {
        "*": {"2024-01": 1, "no date": 1},
        "gptbot": {"2024-02": 2},
        "tdm_reservation": {"2024-02": 1},
    }
    page = (bench.folder / "out/report.html").read_text()
    assert "<h2>Opt-outs</h2>" in page and "gptbot" in page
