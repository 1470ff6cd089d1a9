"""Published models and word lists that steps use by name. Each file is fetched once into the cache
folder, and its sha256 is checked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from curate.fetch.download import OFFLINE, fetch_one
from curate.fetch.transfer import FileToFetch
from llmcurate.base.disk.files import cache_folder
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.terminal import say


@dataclass(frozen=True)
class Published:
    """A published file, fetched when needed."""

    url: str
    size: int  # in bytes
    sha256: str
    place: str  # path below the cache folder

    @property
    def path(self) -> Path:
        return cache_folder() / self.place

    def to_fetch(self) -> list[str]:
        """Return [URL] if a run would fetch the file, else an empty list."""
        return [] if self.path.is_file() or os.environ.get(OFFLINE) else [self.url]

    def fetched(self, otherwise: str) -> Path:
        """Return the path of the file in the cache, after fetching the file if it is missing.
        Raises UsageError if that fails. The error message begins with the text `otherwise`, which
        should name what is missing and another way to provide it."""
        if why := self.fetch_problem():
            folder = self.path.parent
            raise UsageError(
                f"{otherwise}, or allow the download of {self.url} to {folder} ({why})"
            )
        return self.path

    def fetch_problem(self, tries: int = 3, seconds: float = 60.0) -> str | None:
        """Fetch the file if it is missing. Return None, or the reason why it could not be fetched.
        tries, seconds: as in `download`."""
        if self.path.is_file():
            return None
        if os.environ.get(OFFLINE):
            return f"{OFFLINE} is set"
        size = f"{self.size / 1e6:.1f} MB" if self.size >= 100_000 else f"{self.size:,} bytes"
        say(f"fetching {self.url} ({size}) to {self.path.parent}")
        wanted = FileToFetch(self.url, self.path, f"sha256:{self.sha256}", most=self.size)
        try:
            fetch_one(wanted, tries=tries, seconds=seconds)
        except RunFailed as error:
            return f"download failed: {error}"
        return None


def lists_of(collection: str) -> dict[str, Published]:
    """Return the lists of a collection such as ldnoobw, by file name (from published_lists.txt)."""
    lines = Path(__file__).with_name("published_lists.txt").read_text("utf-8").splitlines()
    entries = (line.split() for line in lines if line.startswith(f"{collection}/"))
    return {
        name.partition("/")[2]: Published(url, int(size), sha, f"lists/{name}")
        for name, size, sha, url in entries
    }


def all_available(files: Iterable[Published], without: str, quiet: bool = False) -> bool:
    """Fetch the files that are missing in the cache, and return True if all files are then in it.
    Otherwise return False and print one line, unless `quiet`: the text `without` and the reason."""
    for file in files:
        if why := file.fetch_problem(tries=1, seconds=10.0):
            say(f"{without} ({why}); the next run with a network fetches them", quiet)
            return False
    return True
