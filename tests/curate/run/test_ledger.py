"""The ledger: rows of partitions share a commit, and are read in order, a page at a time."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from curate.run import ledger as ledgers
from curate.run.ledger import Ledger
from llmcurate.base.errors import LockHeld


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


@pytest.mark.parametrize(
    ("pid", "began", "held"),
    [(os.getppid(), 0, True), (os.getppid(), 1.9, True), (os.getppid(), -2, False),
     (os.getppid(), 1e6, False), (os.getpid(), 0, False), (2**22 + 1, 0, False)],
    ids=["lives", "about then", "later", "long before", "this one", "gone"],
)  # fmt: skip
def test_a_lock_is_of_a_process_that_lives_and_began_when_it_took_it(
    tmp_path: Path, pid: int, began: float, held: bool
) -> None:
    """Another one may have its number by now."""
    Ledger(tmp_path).close()
    created = psutil.Process(pid).create_time() if psutil.pid_exists(pid) else 0.0
    with sqlite3.connect(tmp_path / Ledger.file) as db:
        row = (pid, created + began, socket.gethostname())
        db.execute("INSERT INTO lock VALUES (1, ?, ?, ?, 'noon', 0)", row)
    expected = (
        pytest.raises(LockHeld, match=f"in use by process {pid} on") if held else nullcontext()
    )
    with expected:
        Ledger(tmp_path).close()


def test_a_commit_is_on_the_disk_when_it_is_done(tmp_path: Path) -> None:
    ((level,),) = Ledger(tmp_path)._rows("PRAGMA synchronous")
    assert level == 2  # FULL: https://sqlite.org/pragma.html#pragma_synchronous


@pytest.mark.parametrize("how", ["stage", "close", "results"])
def test_ledger_rows_are_written_before_anything_that_depends_on_them(
    tmp_path, still, how: str
) -> None:
    ledger = Ledger(tmp_path)
    ledger.commit_part("a", 0, {})
    if how == "stage":
        ledger.commit_stage("a", {})
    elif how == "close":
        ledger.close()
    else:
        assert [*ledger.results("a", dict)] == [(0, {})]
    assert rows(tmp_path) == 1


def test_results_come_in_order_while_rows_are_forgotten(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ledgers, "PAGE_ROWS", 3)
    ledger = Ledger(tmp_path)
    for part in reversed(range(10)):
        ledger.commit_part("a", part, {"kept": part})
        ledger.commit_part("b", part, {})
    seen = []
    for part, result in ledger.results("a", dict):
        assert result == {"kept": part}
        seen.append(part)
        ledger.forget_part("a", part)
    assert seen == [*range(10)] and [*ledger.results("a", dict)] == []
    ledger.forget_parts("b")
    assert rows(tmp_path) == 0
