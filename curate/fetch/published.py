"""Files that others published and that steps ask for by name: models, word lists. Each is fetched
once, into the folder of caches, and is what its sha256 says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from curate.fetch.download import OFFLINE, fetch_one
from curate.fetch.transfer import Wanted
from llmcurate.base.disk.files import cache_folder
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import say


@dataclass(frozen=True)
class Published:
    """A file that is fetched when it is asked for. place: its path in the folder of caches; size:
    its bytes."""

    url: str
    size: int
    sha256: str
    place: str

    @property
    def path(self) -> Path:
        """Return where the file lies once it was fetched."""
        return cache_folder() / self.place

    def to_fetch(self) -> list[str]:
        """The URL, where a run would fetch it."""
        return [] if self.path.is_file() or os.environ.get(OFFLINE) else [self.url]

    def fetched(self, otherwise: str) -> Path:
        """The file in the cache, fetched where it is not there.

        UsageError where that cannot be. otherwise: the beginning of its line, which says what is
        missing and how else to give it.
        """
        if why := self.why_not():
            folder = self.path.parent
            raise UsageError(
                f"{otherwise}, or allow the download of {self.url} to {folder} ({why})"
            )
        return self.path

    def why_not(self, tries: int = 3, seconds: float = 60.0) -> str | None:
        """Fetches the file where it is not there; None, or why that cannot be. tries, seconds: as
        of `download`."""
        if self.path.is_file():
            return None
        if os.environ.get(OFFLINE):
            return f"{OFFLINE} is set"
        size = f"{self.size / 1e6:.1f} MB" if self.size >= 100_000 else f"{self.size:,} bytes"
        say(f"fetching {self.url} ({size}) to {self.path.parent}")
        wanted = Wanted(self.url, self.path, f"sha256:{self.sha256}", most=self.size)
        try:
            fetch_one(wanted, tries=tries, seconds=seconds)
        except RunFailed as error:
            return f"download failed: {error}"
        return None


@lru_cache(maxsize=1)
def _catalogue() -> list[tuple[str, Published]]:
    lines = Path(__file__).with_name("published_lists.txt").read_text("utf-8").splitlines()
    entries = (line.split() for line in lines if not line.startswith("#"))
    return [(n, Published(url, int(size), sha, f"lists/{n}")) for n, size, sha, url in entries]


def lists_of(collection: str) -> dict[str, Published]:
    """The lists of a collection, such as ldnoobw, by the names of its files. Sizes and digests are
    in published_lists.txt, with their sources."""
    prefix = f"{collection}/"
    named = (
        (name.removeprefix(prefix), file) for name, file in _catalogue() if name.startswith(prefix)
    )
    return dict(named)


def all_at_hand(files: Iterable[Published], without: str) -> bool:
    """Whether all of these lists are there or can be fetched; else one line says why not. without:
    the beginning of the line."""
    for file in files:
        if why := file.why_not(tries=1, seconds=10.0):
            say(f"{without} ({why}); the next run with a network fetches them")
            return False
    return True
