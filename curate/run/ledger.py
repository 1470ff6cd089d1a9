"""The ledger of an OUT folder: which partitions and stages are done, and who works there now."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from llmcurate.base.disk.files import make_folder, text_digest, url_of
from llmcurate.base.disk.seals import Seal
from llmcurate.base.errors import LlmcurateError, LockHeld, RunFailed, UsageError, disk_error
from llmcurate.base.messages import decode, encode
from llmcurate.base.terminal import say

T = TypeVar("T")

STALE_SECONDS = 300.0  # a holder on another machine that is not seen to write for so long is dead
LOOK_SECONDS = 5.0  # between two looks at its last sign of life
BEAT_SECONDS = 10
# A commit waits for the disk, some milliseconds; rows of partitions share one. Who is killed loses
# the rows that wait: their partitions are computed again, to the same bytes.
BATCH_ROWS = 1000
WAIT_SECONDS = 0.5  # and until the next beat, which comes twice a second
PAGE_ROWS = 1000
PAGE_BYTES = 1 << 14  # of new ledgers: a row is some 2 kB, and a smaller page would hold one

# The check of a ledger's pages reads all of it: 0.07 s of CPU time and 280 MB for 10^5 partitions.
CHECKED_BYTES = 1 << 30


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


def packed(key: tuple[object, ...], result: object) -> str:
    """A result as its row has it: JSON, and behind a line's end a digest of the row."""
    text = encode(result).decode()
    return f"{text}\n{row_digest(key, text)}"


def unpacked(key: tuple[object, ...], row: object, kind: type[T]) -> T | None:
    """The result in a row, of that type; None where the row is damaged."""
    text, _, digest = str(row).partition("\n")
    return decode(kind, text) if digest == row_digest(key, text) else None


def row_digest(key: tuple[object, ...], text: str = "") -> str:
    """The digest that a row carries of its values."""
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
            self._look()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(self.tables)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None
        self._take(stale)

    @classmethod
    def to_read(cls, path: Path) -> Ledger:
        """Without the lock, and without a change of the file. RunFailed where it is damaged."""
        ledger = cls.__new__(cls)
        ledger.path, ledger._locked = path, False
        ledger._beat, ledger._since, ledger._waiting = 0.0, 0.0, []
        try:
            ledger._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ledger._look()
        except sqlite3.DatabaseError as error:
            raise ledger._failure(error) from None
        return ledger

    def _look(self) -> None:
        """sqlite3.DatabaseError where the file is damaged. Of a large one that is found out when a
        page is read: each row has a digest of its own, and one that is lost is computed anew."""
        self._db.text_factory = lambda text: text.decode("utf-8", "replace")
        self._db.execute("PRAGMA cell_size_check=ON")
        if self.path.stat().st_size > CHECKED_BYTES:
            return
        ((health,),) = self._db.execute("PRAGMA quick_check(1)").fetchall()
        if health != "ok":
            raise sqlite3.DatabaseError(health)

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
        with self._transaction():
            row = self._db.execute("SELECT pid, created, host, since, beat FROM lock").fetchone()
            if row:
                pid, created, other, since, beat = row
                owner = f"{self.path.parent} is in use by process {pid} on {other}, started {since}"
                holder = _Holder(owner, beat)
                if other != host and not (dead and holder == watched):
                    return holder
                now = _created(pid) if other == host else None
                if now is not None and abs(now - created) < 2 and pid != me:
                    raise LockHeld(f"{owner}; wait for it, or stop it and run again")
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            self._db.execute("DELETE FROM lock")
            self._db.execute(
                "INSERT INTO lock VALUES (1, ?, ?, ?, ?, ?)",
                (me, _created(me), host, since, time.time()),
            )
        return None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is written within, or nothing of it."""
        self.flush()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # a full disk has ended it already
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.DatabaseError):
                raise self._failure(error) from None
            raise

    def _write(self, sql: str, values: tuple[Any, ...] = ()) -> None:
        self.flush()
        try:
            self._db.execute(sql, values)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def flush(self) -> None:
        """Commits the rows of partitions that wait."""
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", rows)

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def _failure(self, error: sqlite3.DatabaseError) -> LlmcurateError:
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
        now = time.monotonic()
        if self._locked and now - self._beat > BEAT_SECONDS:
            self._beat = now
            self._write("UPDATE lock SET beat = ?", (time.time(),))
        elif now - self._since > WAIT_SECONDS:
            self.flush()

    def results(self, stage: str, kind: type[T]) -> Iterator[tuple[int, T]]:
        """(partition, result) of the committed partitions of a stage in their order. A page of them
        is in memory; rows may be written and forgotten meanwhile. A damaged row is taken back: its
        partition is not done."""
        self.flush()
        after = -1
        query = "SELECT part, result FROM parts WHERE stage = ? AND part > ? ORDER BY part LIMIT ?"
        while rows := list(self._rows(query, (stage, after, PAGE_ROWS))):
            for part, row in rows:
                if (result := self._unpacked((stage, part), row, kind)) is not None:
                    yield part, result
                else:
                    self._say_damaged(f"partition {part} of stage {stage}")
                    self.forget_part(stage, part)
            after = rows[-1][0]

    def _unpacked(self, key: tuple[object, ...], row: object, kind: type[T]) -> T | None:
        try:
            return unpacked(key, row, kind)
        except ValueError:  # somebody wrote it who knows how to make a digest
            row = f"its row of {key[0]}"
            fault = f"{self.path} is damaged ({row}); move it away to start afresh"
            raise RunFailed(fault) from None

    def _say_damaged(self, row: str) -> None:
        say(f"{self.path}: its row of {row} is damaged: it is computed anew")

    def commit_part(self, stage: str, part: int, result: object) -> None:
        """Records a partition whose files are in place, with the next rows or within a second."""
        now = time.monotonic()
        if not self._waiting:
            self._since = now
        self._waiting.append((stage, part, packed((stage, part), result)))
        if len(self._waiting) >= BATCH_ROWS or now - self._since > WAIT_SECONDS:
            self.flush()

    def forget_part(self, stage: str, part: int) -> None:
        """Takes a record back whose files are gone."""
        self._write("DELETE FROM parts WHERE stage = ? AND part = ?", (stage, part))

    def forget_parts(self, stage: str) -> None:
        """Takes back the records of all partitions of a stage."""
        self._write("DELETE FROM parts WHERE stage = ?", (stage,))

    def stage_result(self, stage: str, kind: type[T]) -> T | None:
        """The record of a finished stage, None where it is not finished, or damaged."""
        for (row,) in self._rows("SELECT result FROM stages WHERE stage = ?", (stage,)):
            if (result := self._unpacked((stage,), row, kind)) is not None:
                return result
            self._say_damaged(stage)
            self.forget_stage(stage)
        return None

    def has(self, stage: str) -> bool:
        """Return whether a stage is finished."""
        return self.stage_result(stage, dict) is not None

    def commit_stage(self, stage: str, result: object) -> None:
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
            yield stage, part, unpacked((stage, part), row, dict)
        for stage, row in self._rows("SELECT stage, result FROM stages"):
            yield stage, None, unpacked((stage,), row, dict)

    def files(self) -> Iterator[tuple[str, Seal, int]]:
        """The files of the finished run: path from OUT, seal, time of change in nanoseconds."""
        rows = self._rows("SELECT path, size, digest, changed FROM files ORDER BY path")
        return ((path, [size, digest], changed) for path, size, digest, changed in rows)

    def record_files(self, files: Iterable[tuple[str, Seal, int]]) -> None:
        """Makes these the files of the finished run."""
        with self._transaction():
            self._write("DELETE FROM files")
            for path, (size, digest), changed in files:
                row = (path, size, digest, changed)
                self._write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", row)

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
        """Commits what waits and gives the lock back."""
        # On a full disk rows are lost, whose partitions are computed again, and the lock's stays:
        # the next holder sees that this process is gone.
        with suppress(LlmcurateError):
            self.flush()
        with suppress(sqlite3.OperationalError):
            self._db.execute("DELETE FROM lock WHERE pid = ?", (os.getpid(),))
        self._db.close()
