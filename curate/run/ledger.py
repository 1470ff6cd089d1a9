"""The ledger of an OUT folder: which partitions and stages are done, and who works there now."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from curate.disk.files import make_folder
from curate.disk.publish import url_of
from curate.errors import CurateError, LockHeld, RunFailed, UsageError, disk_error
from curate.terminal.progress import say

STALE_SECONDS = 300.0  # a holder on another machine that is not seen to write for so long is dead
LOOK_SECONDS = 5.0  # between two looks at its last sign of life
BEAT_SECONDS = 10
# A commit waits for the disk, some milliseconds; rows of partitions share one. Who is killed loses
# the rows that wait: their partitions are computed again, to the same bytes.
BATCH_ROWS = 1000
WAIT_SECONDS = 0.5  # and until the next beat, which comes twice a second
PAGE_ROWS = 1000
PAGE_BYTES = 1 << 14  # of new ledgers: a row is some 2 kB, and a smaller page would hold one


LOCK = """
CREATE TABLE IF NOT EXISTS lock (
  one INTEGER PRIMARY KEY CHECK (one = 1), pid INTEGER, created REAL, host TEXT, since TEXT,
  beat REAL);
"""
_TABLES = f"""{LOCK}
CREATE TABLE IF NOT EXISTS parts (
  stage TEXT, part INTEGER, result TEXT, PRIMARY KEY (stage, part));
CREATE TABLE IF NOT EXISTS stages (stage TEXT PRIMARY KEY, result TEXT);
CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY, plan TEXT, done INTEGER, note TEXT);
"""


def _created(pid: int) -> float | None:
    """When the process started, None where there is none (or only a zombie)."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def _text(result: dict[str, Any]) -> str:
    """As JSON; what orjson, five times as fast, refuses (names of files that are no UTF-8), too."""
    try:
        return orjson.dumps(result).decode()
    except TypeError:
        return json.dumps(result)


def _result(text: str) -> dict[str, Any]:
    try:
        result: dict[str, Any] = orjson.loads(text)
    except ValueError:
        result = json.loads(text)
    return result


RUN = ".run"  # the folder of a run within an OUT that holds products alone


def ledger_path(out: Path) -> Path:
    """Where OUT has its ledger: at its root, or in the folder of a run that made products alone."""
    apart = out / RUN / Ledger.file
    return apart if apart.exists() and not (out / Ledger.file).exists() else out / Ledger.file


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


class _Holder(NamedTuple):
    told: str  # who it is, for messages
    beat: float  # its last sign of life, by its own clock


class Ledger:
    """One SQLite file; the lock is held from `open` to `close`. One that may not be written to is
    read, and has no lock. stale: seconds after which a silent holder elsewhere counts as dead."""

    file = "ledger.db"
    tables = _TABLES

    def __init__(self, out: Path, stale: float = STALE_SECONDS) -> None:
        if url := url_of(out):
            raise UsageError(f"OUT {url}: this command writes into a folder; give one")
        self.path = out / self.file
        make_folder(out)
        self._beat = 0.0
        self._waiting: list[tuple[str, int, str]] = []  # rows of partitions
        self._since = 0.0  # when the first of them came
        # sqlite writes a journal beside the file.
        self._locked = not self.path.exists() or all(map(_may_write, (out, self.path)))
        if not self._locked:
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            return
        try:
            self._db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            self._db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(self.tables)
        except sqlite3.OperationalError as error:
            raise self._failure(error) from None
        except sqlite3.DatabaseError as error:
            raise RunFailed(
                f"{self.path} is damaged ({error}); move it away to start afresh"
            ) from None
        self._take(stale)

    def _take(self, stale: float) -> None:
        """Takes the lock. A holder on another machine is watched for up to `stale` seconds by this
        machine's clock alone, for theirs may be ahead: one that is seen to write lives."""
        holder = self._try()
        if holder is None:
            return
        say(f"{holder.told}; it is watched for a sign of life, {stale:g} seconds at most")
        began = time.monotonic()
        while (watched := time.monotonic() - began) < stale:
            time.sleep(min(LOOK_SECONDS, stale - watched))
            if (now := self._try(holder)) is None:
                return
            if now != holder:
                raise LockHeld(f"{now.told}; wait for it, or stop it and run again")
        if self._try(holder, dead=True) is not None:
            raise LockHeld(f"{holder.told}; wait for it, or stop it and run again")

    def _try(self, watched: _Holder | None = None, dead: bool = False) -> _Holder | None:
        """Takes the lock where nobody holds it, or this machine knows that the holder is gone, or
        it is the watched one and that is dead. Returns the holder on another machine otherwise;
        LockHeld for one on this machine."""
        me, host = os.getpid(), socket.gethostname()
        self._write("BEGIN IMMEDIATE")
        try:
            row = self._db.execute("SELECT pid, created, host, since, beat FROM lock").fetchone()
            if row:
                pid, created, other, since, beat = row
                told = f"{self.path.parent} is in use by process {pid} on {other}, started {since}"
                holder = _Holder(told, beat)
                if other != host and not (dead and holder == watched):
                    self._db.execute("ROLLBACK")
                    return holder
                now = _created(pid) if other == host else None
                if now is not None and abs(now - created) < 2 and pid != me:
                    raise LockHeld(f"{told}; wait for it, or stop it and run again")
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            self._db.execute("DELETE FROM lock")
            self._db.execute(
                "INSERT INTO lock VALUES (1, ?, ?, ?, ?, ?)",
                (me, _created(me), host, since, time.time()),
            )
            self._db.execute("COMMIT")
            return None
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _write(self, sql: str, values: tuple[Any, ...] = ()) -> None:
        self.flush()
        try:
            self._db.execute(sql, values)
        except sqlite3.OperationalError as error:
            raise self._failure(error) from None

    def flush(self) -> None:
        """Commits the rows of partitions that wait."""
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", rows)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise self._failure(error) from None

    def _failure(self, error: sqlite3.OperationalError) -> CurateError:
        full = disk_error(error)
        return full or RunFailed(
            f"{self.path} cannot be read or written ({error}): see that its folder has space and"
            " may be written, and run again"
        )

    def beat(self) -> None:
        """Says now and then that the holder lives."""
        now = time.monotonic()
        if self._locked and now - self._beat > BEAT_SECONDS:
            self._beat = now
            self._write("UPDATE lock SET beat = ?", (time.time(),))
        elif now - self._since > WAIT_SECONDS:
            self.flush()

    def results(self, stage: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """(partition, result) of the committed partitions of a stage in their order. A page of them
        is in memory; rows may be written and forgotten meanwhile."""
        self.flush()
        after = -1
        while rows := self._db.execute(
            "SELECT part, result FROM parts WHERE stage = ? AND part > ? ORDER BY part LIMIT ?",
            (stage, after, PAGE_ROWS),
        ).fetchall():
            for part, result in rows:
                yield part, _result(result)
            after = rows[-1][0]

    def commit_part(self, stage: str, part: int, result: dict[str, Any]) -> None:
        """Records a partition whose files are in place, with the next rows or within a second."""
        now = time.monotonic()
        if not self._waiting:
            self._since = now
        self._waiting.append((stage, part, _text(result)))
        if len(self._waiting) >= BATCH_ROWS or now - self._since > WAIT_SECONDS:
            self.flush()

    def forget_part(self, stage: str, part: int) -> None:
        """Takes a record back whose files are gone."""
        self._write("DELETE FROM parts WHERE stage = ? AND part = ?", (stage, part))

    def forget_parts(self, stage: str) -> None:
        """Takes back the records of all partitions of a stage."""
        self._write("DELETE FROM parts WHERE stage = ?", (stage,))

    def stage_result(self, stage: str) -> dict[str, Any] | None:
        """The record of a finished stage, None where it is not finished."""
        row = self._db.execute("SELECT result FROM stages WHERE stage = ?", (stage,)).fetchone()
        return json.loads(row[0]) if row else None

    def commit_stage(self, stage: str, result: dict[str, Any]) -> None:
        """Records a stage as finished."""
        self._write("INSERT OR REPLACE INTO stages VALUES (?, ?)", (stage, json.dumps(result)))

    def last_run(self) -> tuple[str, bool] | None:
        """(plan hash, finished) of the newest run in this folder."""
        rows = self._db.execute("SELECT plan, done FROM runs ORDER BY number DESC LIMIT 1")
        row = rows.fetchone()
        return (row[0], bool(row[1])) if row else None

    def begin_run(self, plan: str) -> None:
        """Notes a run; an unfinished one of the same plan goes on under its number."""
        last = self.last_run()
        if last is None or last[0] != plan:
            self._write("INSERT INTO runs (plan, done) VALUES (?, 0)", (plan,))
        else:
            self._write("UPDATE runs SET done = 0 WHERE number = (SELECT max(number) FROM runs)")

    def end_run(self) -> None:
        """Notes that the newest run is finished."""
        self._write("UPDATE runs SET done = 1 WHERE number = (SELECT max(number) FROM runs)")

    def close(self) -> None:
        """Commits what waits and gives the lock back."""
        # On a full disk rows are lost, whose partitions are computed again, and the lock's stays:
        # the next holder sees that this process is gone.
        with suppress(CurateError):
            self.flush()
        with suppress(sqlite3.OperationalError):
            self._db.execute("DELETE FROM lock WHERE pid = ?", (os.getpid(),))
        self._db.close()
