"""Download many files in parallel. Files that are complete already are not fetched again."""

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
    FileToFetch,
    Options,
    Rate,
    Stopped,
    is_complete,
    remove_note,
    transfer,
)
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError, disk_error

_WEB = ("http://", "https://")
_STEP = 0.25  # seconds between two progress reports
OFFLINE = "LLMCURATE_OFFLINE"


def forbid_offline(url: str) -> None:
    """Raise UsageError for a URL to fetch if LLMCURATE_OFFLINE is set."""
    if os.environ.get(OFFLINE):
        raise UsageError(f"{OFFLINE} is set and forbids fetching {url}")


class NoRoom(RunFailed):
    """The disk is full, so the whole download stops."""


@dataclass
class Outcome:
    """The result of a download. The reasons in `failed` are in the order of the files."""

    fetched: list[Path] = field(default_factory=list)
    there: list[Path] = field(default_factory=list)  # complete before the download
    failed: dict[str, str] = field(default_factory=dict)  # {URL: reason}
    refused: set[str] = field(default_factory=set)  # failed URLs not to be tried again
    bytes: int = 0  # size of the fetched files


def download(
    files: Sequence[FileToFetch],
    tries: int = 5,
    parallel: int = 2,
    rate: float | None = None,
    seconds: float = 60.0,
    pause: float = 0.5,
    offline_tries: bool = True,
    watch: Callable[[int, int], None] = lambda done, received: None,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Fetch files by HTTP(S), or from any store that fsspec knows, and return which ones failed.

    tries: attempts in a row without a new byte before a file fails. parallel: the number of files
    fetched at the same time. rate: the limit in bytes/s for all files together. seconds: how long a
    server may send nothing. pause: seconds before the second try, doubled for each further one.
    offline_tries: try again if the host name is not found. watch(done, received): called a few
    times per second with the numbers of finished files and of received bytes. say(line): called for
    each failure. Raises UsageError if files are missing and LLMCURATE_OFFLINE is set, RunFailed if
    the disk is full.
    """
    complete_files = [is_complete(f) for f in files]
    missing = [f for f, complete in zip(files, complete_files, strict=True) if not complete]
    if missing:
        forbid_offline(missing[0].url)
    stop, lock = threading.Event(), threading.Lock()
    received = [0]

    def count(size: int) -> None:
        with lock:
            received[0] += size

    options = Options(tries, Rate(None), pause, stop=stop, count=count, offline_tries=offline_tries)
    options.rate = Rate(rate, options.wait)
    http, store = Http(parallel, seconds), Store()
    sizes: dict[str, int] = {}
    reasons: dict[str, str] = {}
    refused: set[str] = set()
    done = len(files) - len(missing)
    watch(done, 0)
    with ThreadPoolExecutor(parallel, thread_name_prefix="fetch") as threads:
        waiting: dict[Future[int], FileToFetch] = {}
        try:
            for wanted in missing:
                source: Source = http if wanted.url.lower().startswith(_WEB) else store
                waiting[threads.submit(_transfer_one, wanted, source, options)] = wanted
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
            remove_note(wanted.target.with_name(wanted.target.name + PART))
            outcome.there.append(wanted.target)
        elif wanted.url in sizes:
            outcome.fetched.append(wanted.target)
        else:
            outcome.failed[wanted.url] = reasons[wanted.url]
    return outcome


def fetch_one(wanted: FileToFetch, **options: Any) -> None:
    """Fetch one file. `options` are those of `download`. Raises RunFailed with the reason if the
    file cannot be fetched, UsageError if LLMCURATE_OFFLINE is set."""
    failed = download([wanted], parallel=1, offline_tries=False, **options).failed
    if failed:
        raise RunFailed(failed[wanted.url])


def _transfer_one(wanted: FileToFetch, source: Source, options: Options) -> int:
    try:
        return transfer(wanted, source, options)
    except Stopped:
        raise RunFailed("stopped") from None
    except OSError as error:
        full = disk_error(error)
        if full is None:
            raise RunFailed(f"{error.filename or wanted.target}: {error.strerror}") from None
        raise NoRoom(str(full)) from None
