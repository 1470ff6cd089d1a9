"""Fetch one file into NAME.part, resume it after an interruption, check it, and rename it to NAME.

NAME.part.json records the URL and version of NAME.part. A transfer is resumed only if the source
states a version (ETag, Last-Modified) or a checksum is given. A NAME.part that has content but no
NAME.part.json belongs to another program and is not overwritten. Links are not followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from curate.fetch.sources import EARLY, Answer, Changed, Failed, NoHost, Refused, Source
from llmcurate.base.disk.files import file_digest, sync_path, write_text
from llmcurate.base.errors import RunFailed

PART = ".part"


@dataclass(frozen=True)
class FileToFetch:
    """A file to fetch, and where to store it."""

    url: str
    target: Path
    checksum: str | None = None  # `sha256:HEX` or `md5:HEX`
    most: int | None = None  # the maximal size in bytes
    note: Path | None = None  # path for a JSON file with the URL, version and size


class Rate:
    """A limit in bytes/s for all threads, None for no limit. Tests replace `wait` and `clock`."""

    def __init__(
        self,
        rate: float | None,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self._wait, self._clock = wait, clock
        self._lock = threading.Lock()
        self._paid = clock()  # the time up to which the limit is used up

    @property
    def block(self) -> int:
        """Number of bytes to read at once: what the rate allows in 0.25 seconds, at most 1 MiB."""
        return 1 << 20 if self.rate is None else max(1, min(1 << 20, int(self.rate / 4)))

    def pace(self, size: int) -> None:
        """Wait until `size` more bytes keep within the limit."""
        if self.rate is None:
            return
        with self._lock:
            now = self._clock()
            self._paid = max(self._paid, now) + size / self.rate
            ahead = self._paid - now
        if ahead > 0:
            self._wait(ahead)


class Stopped(Exception):
    """The user stopped the download."""


@dataclass
class Options:
    """The settings of a transfer."""

    tries: int = 5  # attempts in a row without a new byte before the transfer fails
    rate: Rate = field(default_factory=lambda: Rate(None))
    pause: float = 0.5  # seconds before the second try, doubled for each further one
    patience: float = 600.0  # the longest wait in seconds that a server may ask for
    stop: threading.Event | None = None
    count: Callable[[int], None] = lambda size: None  # called with each number of received bytes
    offline_tries: bool = True  # try again if the host name is not found

    def wait(self, seconds: float) -> None:
        """Sleep for some seconds. Raises Stopped if `stop` is set meanwhile."""
        if (self.stop or threading.Event()).wait(seconds):
            raise Stopped()

    def check_stopped(self) -> None:
        if self.stop is not None and self.stop.is_set():
            raise Stopped()


def is_complete(wanted: FileToFetch) -> bool:
    """Return True if the file exists and, if a checksum is given, has this checksum."""
    if not wanted.target.is_file():
        return False
    return wanted.checksum is None or not _differs(wanted.target, wanted.checksum)


def transfer(wanted: FileToFetch, source: Source, options: Options) -> int:
    """Fetch a file and return its size in bytes. Failed tries are repeated; RunFailed is raised
    after the last one. Raises Refused if another try would not help. The bytes received so far are
    kept for the next call."""
    from urllib3 import Retry
    from urllib3.exceptions import MaxRetryError, ProtocolError

    part = wanted.target.with_name(wanted.target.name + PART)
    fresh = Retry(total=options.tries - 1, backoff_factor=options.pause, redirect=0)
    with _locked_part(part) as out:
        retry, furthest, pieces = fresh, part.stat().st_size, 0
        while True:
            options.check_stopped()
            try:
                pieces += 1
                _try_once(wanted, source, options, out, pieces)
                break
            except Failed as error:
                if isinstance(error, NoHost) and not options.offline_tries:
                    raise RunFailed(str(error)) from None
                size = part.stat().st_size
                if size > furthest:
                    retry, furthest = fresh, size
                if isinstance(error, Changed):
                    _discard(part, out)
                try:
                    retry = retry.increment("GET", wanted.url, error=ProtocolError(str(error)))
                except MaxRetryError:
                    times = f", {options.tries} times in a row" if options.tries > 1 else ""
                    raise RunFailed(f"{error}{times}") from None
                wait = max(options.pause, retry.get_backoff_time(), error.wait or 0.0)
                if wait > options.patience:
                    raise RunFailed(f"{error} and asks to wait {wait:.0f} seconds") from None
                options.wait(wait)
        os.fsync(out.fileno())
        size = part.stat().st_size
        if wanted.note is not None:
            validator, _ = _note(part, wanted.url)
            note = {"url": wanted.url, "validator": validator, "size": size}
            write_text(wanted.note, json.dumps(note))
        part.replace(wanted.target)
        sync_path(part.parent)
        remove_note(part)
    return size


def _try_once(
    wanted: FileToFetch, source: Source, options: Options, out: BinaryIO, pieces: int
) -> None:
    part = Path(out.name)
    validator, size = _note(part, wanted.url)
    at_hand = out.seek(0, os.SEEK_END)
    offset = at_hand if validator or wanted.checksum else 0
    if not (size is not None and offset == size > 0):
        answer = source.open(wanted.url, offset, validator)
        try:
            if offset and size is not None and answer.start and answer.size not in (None, size):
                raise Changed("the length of the file changed")
            _check_size(wanted, answer.size, out)
            if answer.start == 0:
                _discard(part, out)
            out.seek(answer.start)
            note = {"url": wanted.url, "validator": answer.validator or validator}
            write_text(_note_of(part), json.dumps(note | {"size": answer.size}))
            _receive(wanted, answer, options, out)
        finally:
            answer.close()
        offset = answer.start
    if wanted.checksum and (digest := _differs(part, wanted.checksum)):
        _discard(part, out)
        kind, _, expected = wanted.checksum.partition(":")
        reason = f"the received file has {kind} {digest}, expected {expected}"
        # A file received in one piece is what the server has: another try would not help.
        raise Failed(reason) if offset or pieces > 1 else Refused(reason)


def _receive(wanted: FileToFetch, answer: Answer, options: Options, out: BinaryIO) -> None:
    at = answer.start

    def more() -> bytes:
        try:
            return answer.read(options.rate.block)
        except Failed as error:
            if answer.size is None or str(error) != EARLY:
                raise
            return b""  # the error below states the missing bytes

    while data := more():
        out.write(data)
        out.flush()
        at += len(data)
        _check_size(wanted, at, out)
        options.count(len(data))
        options.rate.pace(len(data))
        options.check_stopped()
    if answer.size is not None and at < answer.size:
        raise Failed(f"{EARLY}, {answer.size - at} bytes are missing")
    if answer.size is not None and at > answer.size:
        raise Changed("received more bytes than the server announced")


def _check_size(wanted: FileToFetch, size: int | None, out: BinaryIO) -> None:
    if wanted.most is not None and size is not None and size > wanted.most:
        _discard(Path(out.name), out)
        raise Refused(f"it has more than the expected {wanted.most} bytes")


@contextmanager
def _locked_part(part: Path) -> Iterator[BinaryIO]:
    """Open and lock the .part file. Raises RunFailed if another process has locked it or has just
    fetched the file, or if it was not made by llmcurate."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with _open_part(part) as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFailed("another process is fetching it") from None
        except OSError:
            pass  # a file system without locks
        # Another process may have fetched the file before the lock was taken.
        if not part.exists() or not os.path.samestat(os.fstat(out.fileno()), part.stat()):
            raise RunFailed("another process has just fetched it")
        if os.fstat(out.fileno()).st_size and not _is_ours(_note_of(part)):
            raise _in_the_way(part)
        if os.path.lexists(_note_of(part)) and not _is_ours(_note_of(part)):
            raise _in_the_way(_note_of(part))
        try:
            yield out
        finally:
            if part.exists() and part.stat().st_size == 0:
                remove_note(part)
                part.unlink()


def _open_part(part: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        out = open(part, "rb+", opener=lambda path, _: os.open(path, flags, 0o666))  # noqa: SIM115
    except OSError as error:
        if error.errno in (None, errno.ELOOP, errno.ENXIO, errno.EISDIR):  # None: a pipe
            raise _in_the_way(part) from None
        raise
    if not stat.S_ISREG(os.fstat(out.fileno()).st_mode):
        out.close()
        raise _in_the_way(part)
    return out


def _in_the_way(path: Path) -> RunFailed:
    return RunFailed(
        f"{path} is in the way, and no unfinished fetch left it: move it, or fetch into another"
        " folder"
    )


def _is_ours(note: Path) -> bool:
    try:
        note_content = None if note.is_symlink() else json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(note_content, dict) and note_content.keys() == {"url", "validator", "size"}


def remove_note(part: Path) -> None:
    if _is_ours(_note_of(part)):
        _note_of(part).unlink(missing_ok=True)


def _note_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _note(part: Path, url: str) -> tuple[str | None, int | None]:
    try:
        note = json.loads(_note_of(part).read_text())
        if note["url"] == url:
            validator, size = note["validator"], note["size"]
            if isinstance(validator, str | None) and isinstance(size, int | None):
                return validator, size
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None, None


def _discard(part: Path, out: BinaryIO) -> None:
    out.truncate(0)  # truncate first: a .part with content must have a note
    out.seek(0)
    remove_note(part)


def _differs(path: Path, checksum: str) -> str | None:
    kind, _, expected = checksum.partition(":")
    digest = file_digest(path, kind)
    return None if digest == expected.lower() else digest
