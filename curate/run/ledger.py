"""The ledger of an OUT folder: which partitions and stages are done, and who works there now."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from curate.disk.files import make_folder, text_digest
from curate.disk.publish import url_of
from curate.disk.seals import Seal
from curate.errors import CurateError, LockHeld, RunFailed, UsageError, disk_error
from curate.terminal.progress import say

STALE_SECONDS = 300  # a holder on another machine that has not written for so long is dead
BEAT_SECONDS = 10

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
CREATE TABLE IF NOT EXISTS files (
  path TEXT PRIMARY KEY, size INTEGER, digest TEXT, changed INTEGER);
"""


def packed(key: tuple[object, ...], result: dict[str, Any]) -> str:
    """A result as its row has it: JSON, and behind a line's end a digest of the row."""
    text = json.dumps(result)
    return f"{text}\n{_row_digest(key, text)}"


def unpacked(key: tuple[object, ...], row: object) -> dict[str, Any] | None:
    """The result in a row; None where the row is damaged. Rows of older versions have no digest."""
    text, end, digest = str(row).partition("\n")
    try:
        result = json.loads(text)
    except ValueError:
        return None
    whole = isinstance(result, dict) and (not end or digest == _row_digest(key, text))
    return result if whole else None


def _row_digest(key: tuple[object, ...], text: str) -> str:
    return text_digest(f"{key!r}{text}", "xxh3-128")


def _created(pid: int) -> float | None:
    """When the process started, None where there is none (or only a zombie)."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


RUN = ".run"  # the folder of a run within an OUT that holds products alone


def ledger_path(out: Path) -> Path:
    """Where OUT has its ledger: at its root, or in the folder of a run that made products alone."""
    apart = out / RUN / Ledger.file
    return apart if apart.exists() and not (out / Ledger.file).exists() else out / Ledger.file


class Ledger:
    """One SQLite file; the lock is held from `open` to `close`."""

    file = "ledger.db"
    tables = _TABLES

    def __init__(self, out: Path) -> None:
        if url := url_of(out):
            raise UsageError(f"OUT {url}: this command writes into a folder; give one")
        self.path = out / self.file
        make_folder(out)
        try:
            self._db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            self._look()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(self.tables)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None
        self._beat = 0.0
        self._take()

    @classmethod
    def to_read(cls, path: Path) -> Ledger:
        """Without the lock, and without a change of the file. RunFailed where it is damaged."""
        ledger = cls.__new__(cls)
        ledger.path = path
        try:
            ledger._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ledger._look()
        except sqlite3.DatabaseError as error:
            raise ledger._failure(error) from None
        return ledger

    def _look(self) -> None:
        """sqlite3.DatabaseError where the file is damaged."""
        self._db.text_factory = lambda text: text.decode("utf-8", "replace")
        ((health,),) = self._db.execute("PRAGMA quick_check(1)").fetchall()
        if health != "ok":
            raise sqlite3.DatabaseError(health)

    def _take(self) -> None:
        me, host = os.getpid(), socket.gethostname()
        self._write("BEGIN IMMEDIATE")
        try:
            row = self._db.execute("SELECT pid, created, host, since, beat FROM lock").fetchone()
            if row:
                pid, created, other, since, beat = row
                if other == host:
                    now = _created(pid)
                    alive = now is not None and abs(now - created) < 2 and pid != me
                else:
                    alive = time.time() - beat < STALE_SECONDS
                if alive:
                    raise LockHeld(
                        f"{self.path.parent} is in use by process {pid} on {other}, started"
                        f" {since}; wait for it, or stop it and run again"
                    )
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            self._db.execute("DELETE FROM lock")
            self._db.execute(
                "INSERT INTO lock VALUES (1, ?, ?, ?, ?, ?)",
                (me, _created(me), host, since, time.time()),
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _write(self, sql: str, values: tuple[Any, ...] = ()) -> None:
        try:
            self._db.execute(sql, values)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def _failure(self, error: sqlite3.DatabaseError) -> CurateError:
        if not isinstance(error, sqlite3.OperationalError):
            reason = str(error).splitlines()[-1]
            return RunFailed(f"{self.path} is damaged ({reason}); move it away to start afresh")
        full = disk_error(error)
        return full or RunFailed(
            f"{self.path} cannot be read or written ({error}): see that its folder has space and"
            " may be written, and run again"
        )

    def beat(self) -> None:
        """Says now and then that the holder lives."""
        if time.monotonic() - self._beat > BEAT_SECONDS:
            self._beat = time.monotonic()
            self._write("UPDATE lock SET beat = ?", (time.time(),))

    def done_parts(self, stage: str) -> dict[int, dict[str, Any]]:
        """Results of the committed partitions of a stage. A damaged row is taken back: its
        partition is not done."""
        rows = self._rows("SELECT part, result FROM parts WHERE stage = ?", (stage,))
        results = {part: unpacked((stage, part), row) for part, row in rows}
        for part in [part for part, result in results.items() if result is None]:
            self._damaged(f"partition {part} of stage {stage}")
            self.forget_part(stage, part)
        return {part: result for part, result in results.items() if result is not None}

    def _damaged(self, row: str) -> None:
        say(f"{self.path}: its row of {row} is damaged: it is computed anew")

    def commit_part(self, stage: str, part: int, result: dict[str, Any]) -> None:
        """Records a partition whose files are in place."""
        row = (stage, part, packed((stage, part), result))
        self._write("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", row)

    def forget_part(self, stage: str, part: int) -> None:
        """Takes a record back whose files are gone."""
        self._write("DELETE FROM parts WHERE stage = ? AND part = ?", (stage, part))

    def stage_result(self, stage: str) -> dict[str, Any] | None:
        """The record of a finished stage, None where it is not finished, or damaged."""
        for (row,) in self._rows("SELECT result FROM stages WHERE stage = ?", (stage,)):
            if (result := unpacked((stage,), row)) is not None:
                return result
            self._damaged(stage)
            self.forget_stage(stage)
        return None

    def commit_stage(self, stage: str, result: dict[str, Any]) -> None:
        """Records a stage as finished."""
        row = (stage, packed((stage,), result))
        self._write("INSERT OR REPLACE INTO stages VALUES (?, ?)", row)

    def forget_stage(self, stage: str) -> None:
        """Takes the record of a stage back."""
        self._write("DELETE FROM stages WHERE stage = ?", (stage,))

    def rows(self) -> Iterator[tuple[str, int | None, dict[str, Any] | None]]:
        """Stage, partition (None: of the whole stage) and result of all rows; None for a damaged
        one."""
        for stage, part, row in self._rows("SELECT stage, part, result FROM parts"):
            yield stage, part, unpacked((stage, part), row)
        for stage, row in self._rows("SELECT stage, result FROM stages"):
            yield stage, None, unpacked((stage,), row)

    def files(self) -> Iterator[tuple[str, Seal, int]]:
        """The files of the finished run: path from OUT, seal, time of change in nanoseconds."""
        if not any(self._rows("SELECT 1 FROM sqlite_schema WHERE name = 'files'")):
            return iter(())  # of an older version, opened to be read
        rows = self._rows("SELECT path, size, digest, changed FROM files ORDER BY path")
        return ((path, [size, digest], changed) for path, size, digest, changed in rows)

    def record_files(self, files: Iterable[tuple[str, Seal, int]]) -> None:
        """Makes these the files of the finished run."""
        self._write("BEGIN IMMEDIATE")
        try:
            self._write("DELETE FROM files")
            for path, (size, digest), changed in files:
                row = (path, size, digest, changed)
                self._write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", row)
            self._write("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def last_run(self) -> tuple[str, bool] | None:
        """(plan hash, finished) of the newest run in this folder."""
        rows = self._rows("SELECT plan, done FROM runs ORDER BY number DESC LIMIT 1")
        row = next(rows, None)
        return (row[0], bool(row[1])) if row else None

    def begin_run(self, plan: str) -> None:
        """Notes a run; an unfinished one of the same plan goes on under its number."""
        last = self.last_run()
        if last is None or last[0] != plan:
            self._write("INSERT INTO runs (plan, done) VALUES (?, 0)", (plan,))
        else:
            self.doubt_run()

    def end_run(self) -> None:
        """Notes that the newest run is finished."""
        self._write("UPDATE runs SET done = 1 WHERE number = (SELECT max(number) FROM runs)")

    def doubt_run(self) -> None:
        """Makes the next run compare the content of all that it reuses, as of an unfinished one."""
        self._write("UPDATE runs SET done = 0 WHERE number = (SELECT max(number) FROM runs)")

    def close(self) -> None:
        """Gives the lock back."""
        # On a full disk the row stays; the next holder sees that this process is gone.
        with suppress(sqlite3.OperationalError):
            self._db.execute("DELETE FROM lock WHERE pid = ?", (os.getpid(),))
        self._db.close()
