"""Files of OUT whose content lies elsewhere: in the exchange of machines that share no folder.

In the place of such a file is a link that leads nowhere and names the content: xxh3-128 and size.
So it is renamed and removed with its folder and outlives the process that made it, and who opens it
without having fetched it is told that it is not there, rather than given other bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llmcurate.base.errors import RunFailed

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

LINK = "in-the-exchange:"  # what such a link leads to begins so; the version follows
_VERSION = re.compile(r"[0-9a-f]{32}-[0-9]{1,18}")


def check_version(version: object) -> str:
    """The version; RunFailed where what should name a file's content does not."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise RunFailed(
            f"a worker or the exchange names {str(version)[:100]!r}, which is no file's version:"
            " see what else runs there, and run again, it goes on"
        )
    return version


def version_elsewhere(path: str | Path) -> str | None:
    """The version of a file whose content is elsewhere; None for any other, or for nothing."""
    try:
        target = str(Path(path).readlink())
    except OSError:
        return None
    version = target.removeprefix(LINK)
    return version if version != target and _VERSION.fullmatch(version) else None


def size_of(path: Path) -> int:
    """Bytes of a file, here or elsewhere."""
    version = version_elsewhere(path)
    return path.stat().st_size if version is None else int(seal_of(version)[0])


def check_here(paths: Iterable[Path]) -> None:
    """RunFailed that names the first file whose content is elsewhere."""
    for path in filter(version_elsewhere, paths):
        raise RunFailed(f"{path} lies in an exchange, where only a run with that --exchange reads")


def seal_of(version: str) -> list[int | str]:
    """The seal (disk/seals.py) of that content."""
    digest, _, size = version.partition("-")
    return [int(size), digest]


def all_files(folder: Path) -> Iterator[tuple[os.DirEntry[str], str | None]]:
    """Every file below a folder, and its version where the content is elsewhere."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                if version := version_elsewhere(entry.path):
                    yield entry, version
            elif entry.is_dir():
                yield from all_files(Path(entry.path))
            else:
                yield entry, None


class Storage:
    """Where the content of a run's files lies: all of it on this machine. `Exchange` is the other
    one."""

    def has(self, path: Path) -> bool:
        """Whether a file is there, its content here or elsewhere."""
        return path.exists()

    def fetch(self, paths: Iterable[Path]) -> None:
        """Brings the content of files here that lies elsewhere."""

    @contextmanager
    def lent(self, paths: Iterable[Path]) -> Iterator[None]:
        """Within, the content of these files is here."""
        yield

    def footers(self, paths: Iterable[Path]) -> Iterator[FileMetaData]:
        """The footers of parquet files, in order, without their other content."""
        import pyarrow.parquet as pq

        yield from map(pq.read_metadata, paths)
