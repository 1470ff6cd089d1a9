"""The score counts what was caught, and by whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.demo.score import Row, format_table, score


def record(
    name: str, kind: str, expect: str, cluster: str | None = None, source: str | None = None
) -> dict[str, Any]:
    return {"id": name, "kind": kind, "expect": [expect], "cluster": cluster, "source_id": source}


TRUTH = [
    record("plain", "clean", "kept"),
    record("other", "clean", "kept"),
    record("a", "clean", "kept", "text-01"),
    record("a1", "exact_dup", "dropped:exact_text", "text-01", "a"),
    record("a2", "exact_dup", "dropped:exact_text", "text-01", "a"),
    record("u", "clean", "kept", "url-01"),
    record("u-old", "url_dup", "dropped:exact_url", "url-01", "u"),
    record("menu", "boilerplate", "dropped:c4"),
    record("menu2", "boilerplate", "dropped:c4"),
    record("near", "near_dup", "survives_foundation", "near-01", "plain"),
]
PERFECT = {
    "a1": ("dedup_exact", "same_text"),
    "a2": ("exact_text", "duplicate"),
    "u-old": ("dedup_exact", "same_url"),
    "menu": ("c4", "sentences"),
    "menu2": ("c4", "sentences"),
}


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    path = tmp_path / "truth.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in TRUTH), encoding="utf-8")
    return path


def rows(truth: Path, rejected: dict[str, tuple[str, str]]) -> dict[tuple[str, str], Row]:
    kept = {r["id"] for r in TRUTH} - set(rejected)
    return {(r.kind, r.expected): r for r in score(truth, kept, rejected)}


def test_a_perfect_run_scores_one_everywhere(truth: Path) -> None:
    for row in rows(truth, PERFECT).values():
        assert row.recall == 1.0
        assert row.missed == 0
        assert row.precision in (None, 1.0)


@pytest.mark.parametrize("survivor", ["a", "a1", "a2"])
def test_any_one_survivor_of_a_cluster_is_right(truth: Path, survivor: str) -> None:
    rejected = {k: v for k, v in PERFECT.items() if not k.startswith("a")}
    rejected |= {i: ("exact_text", "duplicate") for i in ("a", "a1", "a2") if i != survivor}
    found = rows(truth, rejected)
    assert found["exact_dup", "dropped:exact_text"].recall == 1.0
    assert found["exact_dup", "dropped:exact_text"].precision == 1.0
    assert found["clean", "kept"].recall == 1.0


def test_a_cluster_without_survivor_costs_precision_and_the_original(truth: Path) -> None:
    found = rows(truth, {**PERFECT, "a": ("dedup_exact", "same_text")})
    row = found["exact_dup", "dropped:exact_text"]
    assert (row.caught, row.recall) == (2, 1.0)
    assert row.precision == pytest.approx(2 / 3)
    assert found["clean", "kept"].missed == 1


def test_a_document_dropped_by_the_wrong_step_is_missed(truth: Path) -> None:
    found = rows(truth, {**PERFECT, "menu": ("gopher", "words")})
    row = found["boilerplate", "dropped:c4"]
    assert (row.planted, row.caught, row.missed, row.recall) == (2, 1, 1, 0.5)
    assert row.precision == 1.0


def test_a_clean_document_dropped_costs_the_step_precision(truth: Path) -> None:
    found = rows(truth, {**PERFECT, "plain": ("c4@datatrove", "lines")})
    assert found["boilerplate", "dropped:c4"].precision == pytest.approx(2 / 3)
    assert found["clean", "kept"].caught == 3


def test_the_newest_crawl_must_survive(truth: Path) -> None:
    rejected = {k: v for k, v in PERFECT.items() if k != "u-old"} | {
        "u": ("dedup_exact", "same_url")
    }
    found = rows(truth, rejected)
    assert found["url_dup", "dropped:exact_url"].recall == 0.0
    assert found["url_dup", "dropped:exact_url"].precision == 0.0
    assert found["clean", "kept"].missed == 1


def test_near_duplicates_should_come_through(truth: Path) -> None:
    found = rows(truth, {**PERFECT, "near": ("dedup_exact", "same_text")})
    assert found["near_dup", "survives_foundation"].recall == 0.0
    assert found["exact_dup", "dropped:exact_text"].precision == pytest.approx(2 / 3)


def test_unknown_documents_and_angle_brackets_are_ignored(truth: Path) -> None:
    rejected = {f"<{k}>": v for k, v in PERFECT.items()} | {"robots": ("c4", "lines")}
    kept = {f"<{r['id']}>" for r in TRUTH} - set(rejected)
    assert all(r.precision in (None, 1.0) for r in score(truth, kept, rejected))


def test_the_table_has_a_line_a_row_under_its_head(truth: Path) -> None:
    found = list(rows(truth, PERFECT).values())
    lines = format_table(found).splitlines()
    assert len(lines) == len(found) + 1
    assert lines[0].split() == [
        "kind",
        "expected",
        "planted",
        "caught",
        "missed",
        "precision",
        "recall",
    ]
    assert "exact_dup" in format_table(found)
