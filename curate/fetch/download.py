"""Many files: those that are there are left alone, the others fetched side by side."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.fetch.sources import Http, Refused, Source, Store
from curate.fetch.transfer import (
    PART,
    Manners,
    Rate,
    Stopped,
    Wanted,
    forget_note,
    is_there,
    transfer,
)
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError, disk_error

_STEP = 0.25  # seconds between two looks at what came


OFFLINE = "LLMCURATE_OFFLINE"


def forbid_offline(url: str) -> None:
    """UsageError where the environment forbids the network."""
    if os.environ.get(OFFLINE):
        raise UsageError(f"{OFFLINE} is set and forbids fetching {url}")


class NoRoom(RunFailed):
    """The disk is full: no other file would fit either."""


@dataclass
class Outcome:
    """What became of the files; failed: URL -> reason, in the order they were given; refused: those
    of them that no other try will bring."""

    fetched: list[Path] = field(default_factory=list)
    there: list[Path] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    bytes: int = 0  # of the files that were fetched


def download(
    files: Sequence[Wanted],
    tries: int = 5,
    parallel: int = 2,
    rate: float | None = None,
    seconds: float = 60.0,
    pause: float = 0.5,
    offline_tries: bool = True,
    watch: Callable[[int, int], None] = lambda done, received: None,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Fetches files by HTTP(S), or from any store that fsspec knows; what failed is in the outcome.

    tries: in a row that bring nothing new; offline_tries: also where no host is found; parallel:
    files at a time; rate: bytes a second in all;
    seconds: how long a server may be silent; watch(done, came): files done and bytes that came, a
    few times a second; say(line): each failure, when it happens. UsageError where files are missing
    and LLMCURATE_OFFLINE forbids, RunFailed where the disk is full.
    """
    complete_files = [is_there(f) for f in files]
    missing = [f for f, complete in zip(files, complete_files, strict=True) if not complete]
    if missing:
        forbid_offline(missing[0].url)
    stop, lock = threading.Event(), threading.Lock()
    received = [0]

    def count(size: int) -> None:
        with lock:
            received[0] += size

    how = Manners(tries, Rate(None), pause, stop=stop, came=count, offline_tries=offline_tries)
    how.rate = Rate(rate, how.wait)
    sources = _Sources(parallel, seconds)
    sizes: dict[str, int] = {}
    reasons: dict[str, str] = {}
    refused: set[str] = set()
    done = len(files) - len(missing)
    watch(done, 0)
    with ThreadPoolExecutor(parallel, thread_name_prefix="fetch") as threads:
        waiting: dict[Future[int], Wanted] = {}
        try:
            waiting = {threads.submit(_transfer_one, f, sources, how): f for f in missing}
            pending = set(waiting)
            while pending:
                ended, pending = wait(pending, timeout=_STEP, return_when=FIRST_COMPLETED)
                for future in ended:
                    wanted = waiting[future]
                    try:
                        sizes[wanted.url] = future.result()
                    except (NoRoom, UsageError):
                        raise
                    except LlmcurateError as error:
                        reasons[wanted.url] = str(error)
                        if isinstance(error, Refused):
                            refused.add(wanted.url)
                        say(f"{wanted.url}: {error}")
                    done += 1
                watch(done, received[0])
        except BaseException:
            stop.set()
            threads.shutdown(cancel_futures=True)
            raise
    outcome = Outcome(bytes=sum(sizes.values()), refused=refused)
    for wanted, complete in zip(files, complete_files, strict=True):
        if complete:
            forget_note(wanted.target.with_name(wanted.target.name + PART))
            outcome.there.append(wanted.target)
        elif wanted.url in sizes:
            outcome.fetched.append(wanted.target)
        else:
            outcome.failed[wanted.url] = reasons[wanted.url]
    return outcome


def fetch_one(wanted: Wanted, **options: Any) -> None:
    """One file, or RunFailed (UsageError offline) with the reason. options: of `download`."""
    failed = download([wanted], parallel=1, offline_tries=False, **options).failed
    if failed:
        raise RunFailed(failed[wanted.url])


class _Sources:
    """One of each kind for all threads, made when the first file needs it."""

    def __init__(self, parallel: int, seconds: float) -> None:
        self._lock = threading.Lock()
        self._parallel, self._seconds = parallel, seconds
        self._made: dict[bool, Source] = {}

    def of(self, url: str) -> Source:
        web = url.lower().startswith(("http://", "https://"))
        with self._lock:
            if web not in self._made:
                self._made[web] = Http(self._parallel, self._seconds) if web else Store()
            return self._made[web]


def _transfer_one(wanted: Wanted, sources: _Sources, how: Manners) -> int:
    """One file in a thread."""
    try:
        return transfer(wanted, sources.of(wanted.url), how)
    except Stopped:
        raise RunFailed("stopped") from None
    except OSError as error:
        full = disk_error(error)
        if full is None:
            raise RunFailed(f"{error.filename or wanted.target}: {error.strerror}") from None
        raise NoRoom(str(full)) from None
