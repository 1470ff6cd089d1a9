"""The ledger of an OUT folder: which partitions and stages are done, and who holds the lock."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from llmcurate.base.disk.files import make_folder, text_digest, url_of
from llmcurate.base.disk.lock import BEAT_SECONDS, STALE_SECONDS, Holder, acquire
from llmcurate.base.disk.seals import Seal
from llmcurate.base.disk.store import LEDGER, Store, current
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError, disk_error
from llmcurate.base.messages import decode, encode
from llmcurate.base.terminal import say

T = TypeVar("T")

# A commit waits some milliseconds for the disk, so the rows of several partitions share a commit. A
# killed process loses its pending rows: their partitions are computed again, to the same bytes.
BATCH_ROWS = 1000
WAIT_SECONDS = 0.5  # longest wait of a row, plus the time to the next beat (half a second)
PAGE_ROWS = 1000
PAGE_BYTES = 1 << 14  # of new ledgers: a row has about 2 kB, so a default page would hold only one

# Checking a ledger's pages reads the whole file: 0.07 s of CPU time and 280 MB for 10^5 partitions.
CHECKED_BYTES = 1 << 30


LOCK = """
CREATE TABLE IF NOT EXISTS lock (
  one INTEGER PRIMARY KEY CHECK (one = 1), pid INTEGER, created REAL, host TEXT, since TEXT,
  beat REAL);
"""
HOLDER = "SELECT pid, created, host, since, beat FROM lock"
_TABLES = f"""{LOCK}
CREATE TABLE IF NOT EXISTS parts (
  stage TEXT, part INTEGER, result TEXT, PRIMARY KEY (stage, part));
CREATE TABLE IF NOT EXISTS stages (stage TEXT PRIMARY KEY, result TEXT);
CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY, plan TEXT, done INTEGER, note TEXT);
CREATE TABLE IF NOT EXISTS files (
  path TEXT PRIMARY KEY, size INTEGER, digest TEXT, changed INTEGER);
CREATE TABLE IF NOT EXISTS segments (name TEXT PRIMARY KEY);
"""
PART = "INSERT OR REPLACE INTO parts VALUES (?, ?, ?)"
FORGET_PART = "DELETE FROM parts WHERE stage = ? AND part = ?"
FORGET_PARTS = "DELETE FROM parts WHERE stage = ?"
STAGE = "INSERT OR REPLACE INTO stages VALUES (?, ?)"
FORGET_STAGE = "DELETE FROM stages WHERE stage = ?"
BEGIN = "INSERT INTO runs (plan, done) VALUES (?, 0)"
DONE = "UPDATE runs SET done = ? WHERE number = (SELECT max(number) FROM runs)"
FORGET_FILES = "DELETE FROM files"
FILE = "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)"
# Segments hold changes as [index of the statement in this tuple, values].
CHANGES = (PART, FORGET_PART, FORGET_PARTS, STAGE, FORGET_STAGE, BEGIN, DONE, FORGET_FILES, FILE)
SEGMENT_ROWS, SEGMENT_SECONDS = 1000, 10.0


def packed(key: tuple[object, ...], result: object) -> str:
    """Return a row of the ledger for a result: JSON, a line break, and a digest of key and JSON."""
    text = encode(result).decode()
    return f"{text}\n{row_digest(key, text)}"


def unpacked(key: tuple[object, ...], row: object, kind: type[T]) -> T | None:
    """Return the result stored in `row`, a row of the ledger's table, as an object of type `kind`.
    Return None if the row's digest, computed with `key`, is wrong."""
    text, _, digest = str(row).partition("\n")
    return decode(kind, text) if digest == row_digest(key, text) else None


def row_digest(key: tuple[object, ...], text: str = "") -> str:
    return text_digest(f"{key!r}{text}", "xxh3-128")


RUN = ".run"  # the run's folder in an OUT that holds only products


def ledger_path(out: Path) -> Path:
    """Return the path of OUT's ledger: at its root, or in its folder RUN if the run made only
    products."""
    apart = out / RUN / Ledger.file
    return apart if apart.exists() and not (out / Ledger.file).exists() else out / Ledger.file


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


class _Segments:
    """A ledger's changes, kept in a remote store as objects (segments) that are never overwritten.

    A driver on a new machine rebuilds its ledger from the segments. A segment's name begins with
    its driver's number (1 for the first to lock the store), so names sort by the order of
    changes."""

    def __init__(self, store: Store, path: Path) -> None:
        self._store, self._folder = store, path.with_name(LEDGER)
        self._lines: list[str] = []
        self._count = 0
        self._written_at = time.monotonic()

    def replay(self, db: sqlite3.Connection) -> None:
        """Apply those segments (files of changes) to the ledger `db` that it has not applied yet.
        Raises sqlite3.DatabaseError for a damaged segment."""
        top = f"{self._store.name(self._folder)}/"
        known = {name for (name,) in db.execute("SELECT name FROM segments")}
        for name in sorted(n for n in self._store.listing if n.startswith(top)):
            if name in known:
                continue
            try:
                rows = [json.loads(line) for line in self._store.load(name).splitlines()]
                with db:
                    db.execute("BEGIN")
                    for number, values in rows:
                        db.execute(CHANGES[number], values)
                    db.execute("INSERT INTO segments VALUES (?)", (name,))
            except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
                raise sqlite3.DatabaseError(f"{self._store.url}/{name}: {error}") from None

    def add(self, sql: str, values: tuple[Any, ...]) -> None:
        if sql in CHANGES:
            self._lines.append(f"{json.dumps([CHANGES.index(sql), values])}\n")

    def write(self, db: sqlite3.Connection, last: bool = False) -> None:
        """Write the waiting changes to a new file (segment) if they are many, if the newest file is
        old, or if `last` is True. Without changes, write nothing."""
        late = last or time.monotonic() - self._written_at > SEGMENT_SECONDS
        if not self._lines or (len(self._lines) < SEGMENT_ROWS and not late):
            return
        self._store.check_lock()
        name = f"{self._folder.name}/{self._store.driver.number:06d}-{self._count:06d}.jsonl"
        name = self._store.name(self._folder.parent / name)
        self._store.write(name, "".join(self._lines).encode())
        db.execute("INSERT OR REPLACE INTO segments VALUES (?)", (name,))
        self._lines.clear()
        self._count += 1
        self._written_at = time.monotonic()


class Ledger:
    """A SQLite file that lists finished work. The file is locked until `close`. A file that may not
    be written is opened for reading, without a lock. If another machine holds the lock and has not
    written for `stale` seconds, its process counts as dead."""

    file = "ledger.db"
    tables = _TABLES

    def __init__(self, out: Path, stale: float = STALE_SECONDS, lock: bool = True) -> None:
        if url := url_of(out):
            raise UsageError(f"OUT {url}: this command writes into a folder; give one")
        self.path = out / self.file
        make_folder(out)
        self._beat = 0.0
        self._pending: list[tuple[str, int, str]] = []  # rows of partitions
        self._pending_since = 0.0  # when the first of them was added
        store, remote = current(), lock and current().covers(self.path)
        self._segments = _Segments(store, self.path) if remote else None
        # sqlite writes a journal beside the file.
        may_write = not self.path.exists() or all(map(_may_write, (out, self.path)))
        self._locked = lock and may_write
        try:
            if not self._locked:
                self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
                self._check_pages()
                return
            self._db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            self._db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            self._check_pages()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(self.tables)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None
        acquire(str(self.path.parent), self._holder, self._replace_holder, say, stale)
        if self._segments is not None:
            try:
                self._segments.replay(self._db)
            except sqlite3.DatabaseError as error:
                raise self._failure(error) from None

    @classmethod
    def to_read(cls, path: Path) -> Ledger:
        """Open a ledger without lock or change. Raises RunFailed if it is damaged."""
        return cls(path.parent, lock=False)

    def _check_pages(self) -> None:
        """Raise sqlite3.DatabaseError if the file's pages are damaged. Files above CHECKED_BYTES
        are not checked, because damage also shows when a page is read, and each row has a digest.
        """
        self._db.text_factory = lambda text: text.decode("utf-8", "replace")
        self._db.execute("PRAGMA cell_size_check=ON")
        if self.path.stat().st_size > CHECKED_BYTES:
            return
        ((health,),) = self._db.execute("PRAGMA quick_check(1)").fetchall()
        if health != "ok":
            raise sqlite3.DatabaseError(health)

    def _holder(self) -> Holder | None:
        self._holder_row = next(self._rows(HOLDER), None)
        return Holder(*self._holder_row) if self._holder_row else None

    def _replace_holder(self, holder: Holder) -> bool:
        with self._transaction():
            if self._db.execute(HOLDER).fetchone() != self._holder_row:
                return False
            row = holder.pid, holder.created, holder.host, holder.since, holder.beat
            self._db.execute("INSERT OR REPLACE INTO lock VALUES (1, ?, ?, ?, ?, ?)", row)
        return True

    @contextmanager
    def _transaction(self) -> Iterator[None]:
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
        if self._segments is not None:
            self._segments.add(sql, values)

    def flush(self) -> None:
        rows, self._pending = self._pending, []
        if rows:
            with self._transaction():
                self._db.executemany(PART, rows)
        if self._segments is not None:
            for row in rows:
                self._segments.add(PART, row)
            if not self._db.in_transaction:
                self._segments.write(self._db)

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
            f"{self.path} cannot be read or written ({error}): check that its folder has space and"
            " may be written, and run again"
        )

    def beat(self) -> None:
        """Write the time to the ledger, not too often, to show that this process is alive."""
        now = time.monotonic()
        if self._locked and now - self._beat > BEAT_SECONDS:
            self._beat = now
            self._write("UPDATE lock SET beat = ?", (time.time(),))
        elif now - self._pending_since > WAIT_SECONDS:
            self.flush()

    def results(self, stage: str, kind: type[T]) -> Iterator[tuple[int, T]]:
        """Yield (partition, result) of a stage's finished partitions, in order. Only one page of
        rows is in memory, and the caller may write or remove rows meanwhile. A damaged row is
        removed, so that its partition counts as not done."""
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
        except ValueError:  # written by another program, with a valid digest
            row = f"its row of {key[0]}"
            fault = f"{self.path} is damaged ({row}); move it away to start afresh"
            raise RunFailed(fault) from None

    def _say_damaged(self, row: str) -> None:
        say(f"{self.path}: its row of {row} is damaged: it is computed again")

    def commit_part(self, stage: str, part: int, result: object) -> None:
        """Record that the files of a partition are complete. The row is written within a second."""
        now = time.monotonic()
        if not self._pending:
            self._pending_since = now
        self._pending.append((stage, part, packed((stage, part), result)))
        if len(self._pending) >= BATCH_ROWS or now - self._pending_since > WAIT_SECONDS:
            self.flush()

    def forget_part(self, stage: str, part: int) -> None:
        self._write(FORGET_PART, (stage, part))

    def forget_parts(self, stage: str) -> None:
        self._write(FORGET_PARTS, (stage,))

    def stage_result(self, stage: str, kind: type[T]) -> T | None:
        """Return the record of a finished stage; None if the stage is not finished or the record is
        damaged."""
        for (row,) in self._rows("SELECT result FROM stages WHERE stage = ?", (stage,)):
            if (result := self._unpacked((stage,), row, kind)) is not None:
                return result
            self._say_damaged(stage)
            self.forget_stage(stage)
        return None

    def has(self, stage: str) -> bool:
        return self.stage_result(stage, dict) is not None

    def commit_stage(self, stage: str, result: object) -> None:
        self._write(STAGE, (stage, packed((stage,), result)))

    def forget_stage(self, stage: str) -> None:
        self._write(FORGET_STAGE, (stage,))

    def rows(self) -> Iterator[tuple[str, int | None, dict[str, Any] | None]]:
        for stage, part, row in self._rows("SELECT stage, part, result FROM parts"):
            yield stage, part, unpacked((stage, part), row, dict)
        for stage, row in self._rows("SELECT stage, result FROM stages"):
            yield stage, None, unpacked((stage,), row, dict)

    def files(self) -> Iterator[tuple[str, Seal, int]]:
        """Yield (path in OUT, [size, digest], time of change in ns) of the finished run's files."""
        rows = self._rows("SELECT path, size, digest, changed FROM files ORDER BY path")
        return ((path, [size, digest], changed) for path, size, digest, changed in rows)

    def record_files(self, files: Iterable[tuple[str, Seal, int]]) -> None:
        with self._transaction():
            self._write(FORGET_FILES)
            for path, (size, digest), changed in files:
                self._write(FILE, (path, size, digest, changed))

    def last_run(self) -> tuple[str, bool] | None:
        """Return (hash of the plan, True if it is finished) of the latest run in this folder."""
        rows = self._rows("SELECT plan, done FROM runs ORDER BY number DESC LIMIT 1")
        row = next(rows, None)
        return (row[0], bool(row[1])) if row else None

    def begin_run(self, plan: str) -> None:
        """Record the start of a run. An unfinished run of the same plan keeps its number."""
        last = self.last_run()
        if last is None or last[0] != plan:
            self._write(BEGIN, (plan,))
        else:
            self.doubt_run()

    def end_run(self) -> None:
        self._write(DONE, (1,))

    def doubt_run(self) -> None:
        """Record the latest run as unfinished, so that the next run compares the digests of all
        files."""
        self._write(DONE, (0,))

    def close(self) -> None:
        # On a full disk, pending rows are lost and computed again. The row of the lock stays: the
        # next holder finds that this process has ended.
        with suppress(LlmcurateError):
            self.flush()
            if self._segments is not None:
                self._segments.write(self._db, last=True)
        with suppress(sqlite3.OperationalError):
            self._db.execute("DELETE FROM lock WHERE pid = ?", (os.getpid(),))
        self._db.close()
