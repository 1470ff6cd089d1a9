"""One file: fetched beside its place as NAME.part, gone on with after a cut or a kill, checked.

NAME.part.json says of which URL and version the part is. A part is gone on with only where the
source names the version (ETag, Last-Modified) or a checksum will tell in the end; else it is
fetched anew. What stands under NAME is whole. A NAME.part that has something in it and no such note
is somebody's file, and stays; links are not followed.
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
class Wanted:
    """A file to fetch. checksum: `sha256:HEX` or `md5:HEX`; most: bytes that it may have; note:
    where to write of which URL and version it is."""

    url: str
    target: Path
    checksum: str | None = None
    most: int | None = None
    note: Path | None = None


class Rate:
    """A limit of bytes a second that threads share: `take(n)` waits until n more may have come.

    rate: bytes a second, None: no limit. wait, clock: sleep and time, which tests replace.
    """

    def __init__(
        self,
        rate: float | None,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self._wait, self._clock = wait, clock
        self._lock = threading.Lock()
        self._paid = clock()  # up to then the limit is used up

    @property
    def block(self) -> int:
        """Bytes to read at once: a quarter of a second's, so that a slow limit flows evenly."""
        return 1 << 20 if self.rate is None else max(1, min(1 << 20, int(self.rate / 4)))

    def take(self, size: int) -> None:
        """Waits until size more bytes are within the limit."""
        if self.rate is None:
            return
        with self._lock:
            now = self._clock()
            self._paid = max(self._paid, now) + size / self.rate
            ahead = self._paid - now
        if ahead > 0:
            self._wait(ahead)


class Stopped(Exception):
    """The user ended it."""


@dataclass
class Manners:
    """How files are fetched. tries: in a row that bring no byte which was not there before;
    pause: seconds before a second one, doubled with each; patience: the longest wait that a server
    may ask for; came(n): is told of every n bytes; offline_tries: also where no host is found."""

    tries: int = 5
    rate: Rate = field(default_factory=lambda: Rate(None))
    pause: float = 0.5
    patience: float = 600.0
    stop: threading.Event | None = None
    came: Callable[[int], None] = lambda size: None
    offline_tries: bool = True

    def wait(self, seconds: float) -> None:
        """Sleeps; Stopped where it is to end meanwhile."""
        if (self.stop or threading.Event()).wait(seconds):
            raise Stopped()

    def go_on(self) -> None:
        """Stopped where it is to end."""
        if self.stop is not None and self.stop.is_set():
            raise Stopped()


def is_there(wanted: Wanted) -> bool:
    """Whether the file is there, and is what its checksum says."""
    if not wanted.target.is_file():
        return False
    return wanted.checksum is None or not _differs(wanted.target, wanted.checksum)


def transfer(wanted: Wanted, source: Source, how: Manners) -> int:
    """Fetches a file and returns its bytes. Refused where that cannot be, RunFailed where it did
    not come in all tries; what came stays for the next time."""
    from urllib3 import Retry
    from urllib3.exceptions import MaxRetryError, ProtocolError

    part = wanted.target.with_name(wanted.target.name + PART)
    fresh = Retry(total=how.tries - 1, backoff_factor=how.pause, redirect=0)
    with _locked(part) as out:
        retry, furthest, pieces = fresh, part.stat().st_size, 0
        while True:
            how.go_on()
            try:
                pieces += 1
                _once(wanted, source, how, out, pieces)
                break
            except Failed as error:
                if isinstance(error, NoHost) and not how.offline_tries:
                    raise RunFailed(str(error)) from None
                size = part.stat().st_size
                if size > furthest:
                    retry, furthest = fresh, size
                if isinstance(error, Changed):
                    _forget(part, out)
                try:
                    retry = retry.increment("GET", wanted.url, error=ProtocolError(str(error)))
                except MaxRetryError:
                    times = f", {how.tries} times in a row" if how.tries > 1 else ""
                    raise RunFailed(f"{error}{times}") from None
                wait = max(how.pause, retry.get_backoff_time(), error.wait or 0.0)
                if wait > how.patience:
                    raise RunFailed(f"{error} and asks to wait {wait:.0f} seconds") from None
                how.wait(wait)
        os.fsync(out.fileno())
        size = part.stat().st_size
        if wanted.note is not None:
            validator, _ = _note(part, wanted.url)
            note = {"url": wanted.url, "validator": validator, "size": size}
            write_text(wanted.note, json.dumps(note))
        part.replace(wanted.target)
        sync_path(part.parent)
        forget_note(part)
    return size


def _once(wanted: Wanted, source: Source, how: Manners, out: BinaryIO, pieces: int) -> None:
    """One try: the rest of the file, or all of it, and its check."""
    part = Path(out.name)
    validator, size = _note(part, wanted.url)
    at_hand = out.seek(0, os.SEEK_END)
    offset = at_hand if validator or wanted.checksum else 0
    if not (size is not None and offset == size > 0):
        answer = source.open(wanted.url, offset, validator)
        try:
            if offset and size is not None and answer.start and answer.size not in (None, size):
                raise Changed("the file has another length than before")
            _fitting(wanted, answer.size, out)
            if answer.start == 0:
                _forget(part, out)
            out.seek(answer.start)
            note = {"url": wanted.url, "validator": answer.validator or validator}
            write_text(_note_of(part), json.dumps(note | {"size": answer.size}))
            _receive(wanted, answer, how, out)
        finally:
            answer.close()
        offset = answer.start
    if wanted.checksum and (digest := _differs(part, wanted.checksum)):
        _forget(part, out)
        kind, _, expected = wanted.checksum.partition(":")
        reason = f"what came has the {kind} {digest}, not {expected}"
        # In one piece it is what the server has: another try would bring it again.
        raise Failed(reason) if offset or pieces > 1 else Refused(reason)


def _receive(wanted: Wanted, answer: Answer, how: Manners, out: BinaryIO) -> None:
    at = answer.start

    def more() -> bytes:
        try:
            return answer.read(how.rate.block)
        except Failed as error:
            if answer.size is None or str(error) != EARLY:
                raise
            return b""  # it is said below how much is missing

    while data := more():
        out.write(data)
        out.flush()
        at += len(data)
        _fitting(wanted, at, out)
        how.came(len(data))
        how.rate.take(len(data))
        how.go_on()
    if answer.size is not None and at < answer.size:
        raise Failed(f"{EARLY}, {answer.size - at} bytes are missing")
    if answer.size is not None and at > answer.size:
        raise Changed("more came than the server said")


def _fitting(wanted: Wanted, size: int | None, out: BinaryIO) -> None:
    if wanted.most is not None and size is not None and size > wanted.most:
        _forget(Path(out.name), out)
        raise Refused(f"it has more than the {wanted.most} bytes that it should have")


@contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """The part, open for this process alone. RunFailed where what stands there is not ours."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with _opened(part) as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFailed("another process is fetching it") from None
        except OSError:
            pass  # a file system without locks
        # Another one may have fetched it between our open and our lock: then this is its file.
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
                forget_note(part)
                part.unlink()


def _opened(part: Path) -> BinaryIO:
    """The part itself, made where it is not there; a link is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        out = open(part, "rb+", opener=lambda path, _: os.open(path, flags, 0o666))  # noqa: SIM115
    except OSError as error:
        if error.errno in (None, errno.ELOOP, errno.ENXIO, errno.EISDIR):  # None: of a pipe
            raise _in_the_way(part) from None
        raise
    if not stat.S_ISREG(os.fstat(out.fileno()).st_mode):
        out.close()
        raise _in_the_way(part)
    return out


def _in_the_way(path: Path) -> RunFailed:
    return RunFailed(
        f"{path} is in the way, it is no file that an unfinished fetch left: move it, or fetch into"
        " another folder"
    )


def _is_ours(note: Path) -> bool:
    """Whether a file is the note of a part."""
    try:
        note_content = None if note.is_symlink() else json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(note_content, dict) and note_content.keys() == {"url", "validator", "size"}


def forget_note(part: Path) -> None:
    """Removes the note of a part, where there is one."""
    if _is_ours(_note_of(part)):
        _note_of(part).unlink(missing_ok=True)


def _note_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _note(part: Path, url: str) -> tuple[str | None, int | None]:
    """(validator, size) of what the part is of; (None, None) where it is of another URL."""
    try:
        note = json.loads(_note_of(part).read_text())
        if note["url"] == url:
            validator, size = note["validator"], note["size"]
            if isinstance(validator, str | None) and isinstance(size, int | None):
                return validator, size
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None, None


def _forget(part: Path, out: BinaryIO) -> None:
    out.truncate(0)  # first: what is not empty has a note
    out.seek(0)
    forget_note(part)


def _differs(path: Path, checksum: str) -> str | None:
    """The file's own sum where it is another one."""
    kind, _, expected = checksum.partition(":")
    digest = file_digest(path, kind)
    return None if digest == expected.lower() else digest
