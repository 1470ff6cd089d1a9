"""Files that machines without a common folder pass to each other, through a folder of any store.

An object is named by its content, so that a name means the same bytes for ever: what is there need
not be put again, and what was read is checked against its name. The folder is one OUT's; a run that
goes on finds what a killed one put there.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from curate.disk.files import stream_digest, write_text
from curate.disk.publish import Store
from curate.errors import RunFailed
from curate.terminal.progress import say

TRIES = 5
WAIT_SECONDS = 0.5  # before the second try; each further one waits twice as long
NOTE = ".exchange"  # in OUT: where its objects are, until a run has succeeded
_RUN = re.compile(r"llmcurate-[0-9a-f]{16}")  # the only folders that are ever removed
_VERSION = re.compile(r"[0-9a-f]{32}-[0-9]+")

T = TypeVar("T")


def version_of(path: Path) -> str:
    """A file's xxh3-128 and size: the name of its content."""
    with open(path, "rb") as file:
        digest = stream_digest(file, "xxh3-128")
        return f"{digest}-{file.tell()}"


def check_version(version: object) -> None:
    """RunFailed where what should name a file's content does not."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise RunFailed(
            f"a worker or the exchange names {str(version)[:100]!r}, which is no file's version:"
            " see what else runs there, and run again, it goes on"
        )


class Exchange:
    """One OUT's folder below a URL. out: the driver's, absolute; run: the folder's name, as
    `open_exchange` makes them (RunFailed for others); wait: seconds before the second try."""

    def __init__(self, url: str, out: Path, run: str, wait: float = WAIT_SECONDS) -> None:
        if not _RUN.fullmatch(run):
            raise RunFailed(f"--exchange {url}: {run[:100]!r} is no folder of an exchange")
        self.url, self.out, self.run, self.wait = url.rstrip("/"), out, run, wait
        self._store = Store(f"{self.url}/{run}", "--exchange")

    def put(self, path: Path, version: str) -> None:
        """Puts a file of that version."""
        self._retried(lambda: self._store.put(path, version))

    def get(self, version: str, path: Path) -> None:
        """Writes the file of that version to a path in a folder that is there."""
        check_version(version)

        def work() -> None:
            self._store.get(version, path)
            if version_of(path) != version:
                raise RunFailed(
                    f"{self._store.url}/{version} is damaged: see that nothing else writes there,"
                    " and run again, it goes on"
                )

        self._retried(work)

    def get_parts(self, version: str, parts: list[list[int]], path: Path) -> None:
        """Writes a file as long as that of the version, of which these ranges [first, end) alone
        are filled. What comes can be checked for its length only."""
        check_version(version)

        def part(first: int, end: int) -> bytes:
            data = self._store.read(version, first, end)
            if len(data) != end - first:
                raise RunFailed(f"{self._store.url}/{version} is cut short: run again, it goes on")
            return data

        with open(path, "wb") as file:
            file.truncate(int(version.rpartition("-")[2]))
            for first, end in parts:
                file.seek(first)
                file.write(self._retried(partial(part, first, end)))

    def versions(self) -> set[str]:
        """The versions that are in the folder and whole."""
        sizes = self._retried(self._store.sizes)
        return {name for name, size in sizes.items() if name.endswith(f"-{size}")}

    def remove(self, versions: Iterable[str]) -> None:
        """Removes objects."""
        self._retried(lambda: self._store.remove(versions))

    def clear(self) -> None:
        """Removes all of them, and the note in OUT."""
        self._retried(self._store.remove_all)
        (self.out / NOTE).unlink(missing_ok=True)

    def _retried(self, work: Callable[[], T]) -> T:
        """The work's result; tried again while the store is away for a moment."""
        for tried in range(TRIES - 1):
            try:
                return work()
            except RunFailed:
                time.sleep(self.wait * 2**tried)
        return work()


def check_exchange(url: str) -> None:
    """RunFailed where nothing can be written there, before hours of work."""
    Store(url, "--exchange").check()


def open_exchange(
    url: str | None, out: Path, quiet: bool = False, wait: float = WAIT_SECONDS
) -> Exchange | None:
    """OUT's exchange at the URL, where there is one.

    OUT says where an earlier run that was killed left its files. That is taken up where the user
    gives the same URL; nothing is read or removed elsewhere, whatever OUT says.
    """
    before, run = _noted(out / NOTE, quiet)
    if before and url and before == url.rstrip("/"):
        return Exchange(before, out, run, wait)
    if before:
        say(
            f"{before}/{run} may hold files of a run that was stopped: give --exchange {before}"
            " again, or remove that folder",
            quiet,
        )
    if url is None:
        return None
    exchange = Exchange(url, out, f"llmcurate-{secrets.token_hex(8)}", wait)
    write_text(out / NOTE, json.dumps({"url": exchange.url, "run": exchange.run}))
    return exchange


def _noted(note: Path, quiet: bool) -> tuple[str, str]:
    """(URL, folder below it) of what an earlier run left; empty where there is nothing."""
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        url, run = content["url"], content["run"]
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError, KeyError, TypeError):
        url = run = None
    if isinstance(url, str) and isinstance(run, str) and _RUN.fullmatch(run) and url.isprintable():
        return url, run
    say(f"{note} names no folder of an exchange and is passed over: remove it", quiet)
    return "", ""
