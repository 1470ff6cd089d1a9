"""Files that machines without a common folder pass to each other, through a folder of any store.

An object is named by its content, so that a name means the same bytes for ever: what is there need
not be put again, and what was read is checked against its name. The folder is one OUT's, whose
files may leave their content there (disk/elsewhere.py): a run that goes on, or has other settings,
finds it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING

from llmcurate.base.disk.elsewhere import LINK, Storage, all_files, check_version, version_elsewhere
from llmcurate.base.disk.files import replacing, stream_digest, write_text
from llmcurate.base.disk.process import in_order
from llmcurate.base.disk.publish import WAIT_SECONDS, Store
from llmcurate.base.errors import RunFailed
from llmcurate.base.terminal.progress import say

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

NOTE = ".exchange"  # in OUT: where its objects are, as long as there are any
TRANSFERS = 8  # objects on their way at once
FOOTER_BYTES = 1 << 14  # that are read of a parquet file's end; a longer footer takes a second read
_RUN = re.compile(r"llmcurate-[0-9a-f]{16}")  # the only folders that are ever removed


def version_of(path: Path) -> str:
    """A file's xxh3-128 and size: the name of its content."""
    with open(path, "rb") as file:
        digest = stream_digest(file, "xxh3-128")
        return f"{digest}-{file.tell()}"


def put_elsewhere(path: Path, version: str) -> None:
    """Makes `path` a file whose content is in the exchange."""
    with replacing(path, sync=False) as aside:
        aside.symlink_to(LINK + check_version(version))


class Exchange(Storage):
    """One OUT's folder below a URL. out: the driver's, absolute; run: the folder's name, as
    `open_exchange` makes them (RunFailed for others); wait: seconds before the second try.

    fetched, put_bytes: bytes that this process has read from the store and written to it.
    """

    def __init__(self, url: str, out: Path, run: str, wait: float = WAIT_SECONDS) -> None:
        if not _RUN.fullmatch(run):
            raise RunFailed(f"--exchange {url}: {run[:100]!r} is no folder of an exchange")
        self.url, self.out, self.run = url.rstrip("/"), out, run
        self.store = Store(f"{self.url}/{run}", "--exchange", wait)
        self.fetched = self.put_bytes = 0
        self._counting = Lock()  # files go and come in several threads
        self._stored: set[str] | None = None

    @property
    def stored(self) -> set[str]:
        """The versions that are in the folder and whole, as the driver knows them: looked up once,
        then kept up by what it puts, is told of and removes."""
        if self._stored is None:
            sizes = self.store.retried(self.store.sizes)
            self._stored = {name for name, size in sizes.items() if name.endswith(f"-{size}")}
        return self._stored

    def _count(self, fetched: int = 0, put: int = 0) -> None:
        with self._counting:
            self.fetched += fetched
            self.put_bytes += put

    def put(self, path: Path, version: str) -> None:
        """Puts a file of that version."""
        self.store.retried(lambda: self.store.put(path, version))
        self._count(put=_size(version))
        if self._stored is not None:
            self._stored.add(version)

    def get(self, version: str, path: Path) -> None:
        """Writes the file of that version to a path in a folder that is there. RunFailed where the
        object is another; it is taken away, so that the next run makes it anew."""
        check_version(version)

        for _ in range(2):
            self.store.retried(lambda: self.store.get(version, path))
            self._count(fetched=path.stat().st_size)
            if version_of(path) == version:
                return
        self.remove({version})
        raise RunFailed(
            f"{self.store.url}/{version} was damaged and is taken away: see that nothing else"
            " writes there, and run again, what it belongs to is made anew"
        )

    def get_parts(self, version: str, parts: list[list[int]], path: Path) -> None:
        """Writes a file as long as that of the version, of which these ranges [first, end) alone
        are filled. Their length is checked here; their bytes by who reads them, with sums that the
        writer left (corpus/shuffle/partitions.py)."""
        check_version(version)
        with open(path, "wb") as file:
            file.truncate(_size(version))
            for first, end in parts:
                file.seek(first)
                file.write(self._read(version, first, end))

    def _read(self, version: str, first: int, end: int) -> bytes:
        """The bytes of an object from `first` to `end`."""

        def work() -> bytes:
            data = self.store.read(version, first, end)
            self._count(fetched=len(data))
            if len(data) != end - first:
                raise RunFailed(f"{self.store.url}/{version} is cut short: run again, it goes on")
            return data

        return self.store.retried(work)

    def has(self, path: Path) -> bool:
        """As of Storage."""
        return path.exists() or version_elsewhere(path) in self.stored

    def fetch(self, paths: Iterable[Path]) -> None:
        """As of Storage."""

        def get(path: Path) -> None:
            if version := version_elsewhere(path):
                with replacing(path) as aside:
                    self.get(version, aside)

        for _ in in_order(get, paths, TRANSFERS):
            pass

    @contextmanager
    def lent(self, paths: Iterable[Path]) -> Iterator[None]:
        """As of Storage; afterwards it is elsewhere again."""
        versions = {path: v for path in paths if (v := version_elsewhere(path))}
        with ExitStack() as stack:
            for path, version in versions.items():
                stack.callback(put_elsewhere, path, version)
            self.fetch(versions)
            yield

    def footers(self, paths: Iterable[Path]) -> Iterator[FileMetaData]:
        """As of Storage: of content elsewhere the last bytes are read."""
        return in_order(self._footer, paths, TRANSFERS)

    def _footer(self, path: Path) -> FileMetaData:
        import pyarrow as pa
        import pyarrow.parquet as pq

        version = version_elsewhere(path)
        if version is None:
            return pq.read_metadata(path)
        size = _size(version)
        end = self._read(version, max(0, size - FOOTER_BYTES), size)
        length = int.from_bytes(end[-8:-4], "little") + 8  # a footer ends with its length and PAR1
        if len(end) < length <= size:
            end = self._read(version, size - length, size)
        return pq.read_metadata(pa.BufferReader(end))

    def publish(self, version: str, store: Store, name: str) -> None:
        """Puts an object into another store, of whose file system it is copied, unless that is
        another one than this."""
        if store.fs is self.store.fs:
            self.store.retried(lambda: self.store.copy(version, store, name))
            return
        with TemporaryDirectory() as folder:
            path = Path(folder) / "object"
            self.get(version, path)
            self.store.retried(lambda: store.put(path, name))

    def remove(self, versions: Set[str]) -> None:
        """Removes objects."""
        self.store.remove(versions)
        if self._stored is not None:
            self._stored -= versions

    def end(self) -> None:
        """Leaves the objects that files of OUT have as their content, and no other; where there is
        none, the note in OUT goes as well."""
        used = {version for _, version in all_files(self.out) if version}
        if used:
            sizes = self.store.retried(self.store.sizes)
            self.remove(sizes.keys() - used)
        else:
            self.store.retried(self.store.remove_all)
            (self.out / NOTE).unlink(missing_ok=True)
        self._stored = None


def _size(version: str) -> int:
    return int(version.rpartition("-")[2])


def check_exchange(url: str) -> None:
    """RunFailed where nothing can be written there, before hours of work."""
    store = Store(url, "--exchange")
    store.retried(store.check, tries=2)


def open_exchange(
    url: str | None, out: Path, quiet: bool = False, wait: float = WAIT_SECONDS
) -> Exchange | None:
    """OUT's exchange at the URL, where there is one.

    OUT says where earlier runs left content of its files. That is taken up where the user gives the
    same URL; nothing is read or removed elsewhere, whatever OUT says.
    """
    before, run = _noted(out / NOTE, quiet)
    if before and url and before == url.rstrip("/"):
        return Exchange(before, out, run, wait)
    if before:
        say(
            f"files of {out} lie in {before}/{run} and are computed anew where they are needed:"
            f" give --exchange {before} to use them, or remove that folder",
            quiet,
        )
    if url is None:
        return None
    exchange = Exchange(url, out, f"llmcurate-{secrets.token_hex(8)}", wait)
    write_text(out / NOTE, json.dumps({"url": exchange.url, "run": exchange.run}))
    return exchange


def free_exchange(url: str | None, out: Path) -> None:
    """Removes what no file of OUT has as its content any more, where its exchange is at the URL."""
    before, run = _noted(out / NOTE, quiet=True)
    if before and url and before == url.rstrip("/"):
        Exchange(before, out.resolve(), run).end()


def _noted(note: Path, quiet: bool) -> tuple[str, str]:
    """(URL, folder below it) of what earlier runs left; empty where there is nothing."""
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
