"""Files that others published and that steps ask for by name: models, word lists. Each is fetched
once, into the folder of caches, and is what its sha256 says."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
        path = self.path
        if path.is_file():
            return path
        if os.environ.get(OFFLINE):
            raise self._missing(otherwise, f"{OFFLINE} is set")
        size = f"{self.size / 1e6:.1f} MB" if self.size >= 100_000 else f"{self.size:,} bytes"
        say(f"fetching {self.url} ({size}) to {path.parent}")
        try:
            fetch_one(Wanted(self.url, path, f"sha256:{self.sha256}", most=self.size), tries=3)
        except RunFailed as error:
            raise self._missing(otherwise, f"download failed: {error}") from None
        return path

    def _missing(self, otherwise: str, why: str) -> UsageError:
        folder = self.path.parent
        return UsageError(f"{otherwise}, or allow the download of {self.url} to {folder} ({why})")
