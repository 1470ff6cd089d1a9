"""The ledger: rows of partitions share a commit, and are read in order, a page at a time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from curate.run import ledger as ledgers
from curate.run.ledger import Ledger


def rows(out: Path) -> int:
    """Rows that another process sees."""
    with sqlite3.connect(f"file:{out / Ledger.file}?mode=ro", uri=True) as db:
        return int(db.execute("SELECT count(*) FROM parts").fetchone()[0])


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands, but for what a test adds."""
    clock = [1000.0]
    monkeypatch.setattr(ledgers.time, "monotonic", lambda: clock[0])
    return clock


def test_partitions_share_a_commit(tmp_path: Path, still: list[float]) -> None:
    ledger = Ledger(tmp_path)
    ledger.beat()
    for part in range(ledgers.BATCH_ROWS - 1):
        ledger.commit_part("a", part, {"kept": part})
    assert rows(tmp_path) == 0
    ledger.commit_part("a", ledgers.BATCH_ROWS, {})
    assert rows(tmp_path) == ledgers.BATCH_ROWS


def test_a_row_waits_no_longer_than_the_next_beat(tmp_path: Path, still: list[float]) -> None:
    ledger = Ledger(tmp_path)
    ledger.beat()
    ledger.commit_part("a", 0, {})
    still[0] += ledgers.WAIT_SECONDS / 2
    ledger.beat()
    assert rows(tmp_path) == 0
    still[0] += ledgers.WAIT_SECONDS
    ledger.beat()
    assert rows(tmp_path) == 1


@pytest.mark.parametrize("how", ["stage", "close", "results"])
def test_rows_are_there_before_anything_that_stands_on_them(tmp_path, still, how: str) -> None:
    ledger = Ledger(tmp_path)
    ledger.commit_part("a", 0, {})
    if how == "stage":
        ledger.commit_stage("a", {})
    elif how == "close":
        ledger.close()
    else:
        assert [*ledger.results("a")] == [(0, {})]
    assert rows(tmp_path) == 1


def test_results_come_in_order_while_rows_are_forgotten(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ledgers, "PAGE_ROWS", 3)
    ledger = Ledger(tmp_path)
    for part in reversed(range(10)):
        ledger.commit_part("a", part, {"kept": part})
        ledger.commit_part("b", part, {})
    seen = []
    for part, result in ledger.results("a"):
        assert result == {"kept": part}
        seen.append(part)
        ledger.forget_part("a", part)
    assert seen == [*range(10)] and [*ledger.results("a")] == []
    ledger.forget_parts("b")
    assert rows(tmp_path) == 0
