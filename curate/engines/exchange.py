"""Files that machines without a common folder pass to each other, through a folder of any store.

An object is named by its content, so that a name means the same bytes for ever: what is there need
not be put again, and what was read is checked against its name. The folder is one OUT's; a run that
goes on finds what a killed one put there.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from curate.atomic import write_text
from curate.errors import RunFailed
from curate.publish import Store

TRIES = 5
WAIT = 0.5  # seconds before the second try; each further one waits twice as long
NOTE = ".exchange"  # in OUT: where its objects are, until a run has succeeded

T = TypeVar("T")


def version_of(path: Path) -> str:
    """A file's xxh3-128 and size: the name of its content."""
    import xxhash

    state, size = xxhash.xxh3_128(), 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
            size += len(block)
    return f"{state.hexdigest()}-{size}"


class Exchange:
    """One OUT's folder below a URL. out: the driver's, absolute; run: the folder's name."""

    def __init__(self, url: str, out: Path, run: str) -> None:
        self.url, self.out, self.run = url.rstrip("/"), out, run
        self._store = Store(f"{self.url}/{run}", "--exchange")

    def put(self, path: Path, version: str) -> None:
        """Puts a file of that version."""
        self._patiently(lambda: self._store.put(path, version))

    def get(self, version: str, path: Path) -> None:
        """Writes the file of that version to a path in a folder that is there."""

        def work() -> None:
            self._store.get(version, path)
            if version_of(path) != version:
                raise RunFailed(
                    f"{self._store.url}/{version} is damaged: see that nothing else writes there,"
                    " and run again, it goes on"
                )

        self._patiently(work)

    def get_parts(self, version: str, parts: list[list[int]], path: Path) -> None:
        """Writes a file as long as that of the version, of which these ranges [first, end) alone
        are filled. What comes can be checked for its length only."""

        def part(first: int, end: int) -> bytes:
            found = self._store.read(version, first, end)
            if len(found) != end - first:
                raise RunFailed(f"{self._store.url}/{version} is cut short: run again, it goes on")
            return found

        with open(path, "wb") as file:
            file.truncate(int(version.rpartition("-")[2]))
            for first, end in parts:
                file.seek(first)
                file.write(self._patiently(partial(part, first, end)))

    def there(self) -> set[str]:
        """The versions that are there and whole."""
        sizes = self._patiently(self._store.sizes)
        return {name for name, size in sizes.items() if name.endswith(f"-{size}")}

    def remove(self, versions: Iterable[str]) -> None:
        """Removes objects."""
        self._patiently(lambda: self._store.remove(versions))

    def clear(self) -> None:
        """Removes all of them, and the note in OUT."""
        self._patiently(self._store.remove_all)
        (self.out / NOTE).unlink(missing_ok=True)

    def _patiently(self, work: Callable[[], T]) -> T:
        """The work's result; tried again while the store is away for a moment."""
        for tried in range(TRIES - 1):
            try:
                return work()
            except RunFailed:
                time.sleep(WAIT * 2**tried)
        return work()


def check_exchange(url: str) -> None:
    """RunFailed where nothing can be written there, before hours of work."""
    Store(url, "--exchange").check()


def open_exchange(url: str | None, out: Path) -> Exchange | None:
    """OUT's exchange at the URL, where there is one. What an earlier run that was killed left
    elsewhere is removed, if it can be reached."""
    note = out / NOTE
    left: dict[str, str] = {}
    with suppress(OSError, ValueError):
        left = json.loads(note.read_text(encoding="utf-8"))
    if left and url and left["url"] == url.rstrip("/"):
        return Exchange(left["url"], out, left["run"])
    if left:
        with suppress(RunFailed):
            Exchange(left["url"], out, left["run"]).clear()
    if url is None:
        return None
    exchange = Exchange(url, out, f"llmcurate-{secrets.token_hex(8)}")
    write_text(note, json.dumps({"url": exchange.url, "run": exchange.run}))
    return exchange
