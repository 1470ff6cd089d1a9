"""A task on a machine that does not see the driver's files: fetched, done in a folder of its own.

Each worker process has one folder, under the temporary files of its machine. `objects` holds what
was fetched or written by its content; `files` holds, while a task runs, what that task reads and
writes by the driver's paths, and nothing else. A path in the task becomes one in there, and back in
its result. The folder is locked as long as the process lives; one whose process is gone is removed
by the next worker that starts, or at the end.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from curate.engines.base import Task
from curate.engines.exchange import TRANSFERS, Exchange, version_of
from llmcurate.base.disk.safe_paths import remove
from llmcurate.base.errors import LlmcurateError, RunFailed

PREFIX = "llmcurate-exchange-"
LOCK = "lock"
FREE_SHARE = 4  # objects take at most one in so many of the bytes that are free on the disk

_cache: Cache | None = None


def work(task: Task) -> dict[str, Any]:
    """{"result": of the function, "wrote": {path: version}}. task: as `ExchangeEngine`
    describes it."""
    global _cache
    address = tuple(task["exchange"])
    if _cache is None or _cache.address != address:
        if _cache is not None:
            _cache.close()
        _cache = Cache(address)
    cache = _cache
    cache.prepare(task)
    function = resolve_name(task["function"])
    try:
        result = function(cache.to_local(task["payload"]))
    except LlmcurateError as error:
        error.args = (cache.to_driver(str(error)),)
        raise
    reply = {"result": cache.to_driver(result), "wrote": cache.take(task)}
    cache.trim(task)
    return reply


class Cache:
    """The folder of this process. address: the exchange's URL, folder and seconds between tries."""

    def __init__(self, address: tuple[str, str, float]) -> None:
        sweep()
        self.address = address
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self._lock = open(self.folder / LOCK, "wb")  # noqa: SIM115  as long as the process lives
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        url, run, wait = address
        self._exchange = Exchange(url, self.folder, run, wait)
        self._objects, self.root = self.folder / "objects", str(self.folder / "files")
        self._objects.mkdir()
        self._sizes: dict[str, int] = {}  # of objects, the last used one last
        self._outside: set[str] = set()
        self._out = ""

    def prepare(self, task: Task) -> None:
        """Makes `files` hold what the task reads, and the folders that it writes into."""
        remove(Path(self.root), inside=self.folder)
        self._out = task["out"]
        outside = [name for name in task["reads"] if not self._in_out(name)]
        above = {str(parent) for name in outside for parent in Path(name).parents}
        self._outside = {*outside, *(name for name in above if os.sep in name.lstrip(os.sep))}
        for name in (*task["writes"], *task["may"]):
            self._path(name).parent.mkdir(parents=True, exist_ok=True)
        for name in task["reads"]:
            self._path(name).parent.mkdir(parents=True, exist_ok=True)
        parts = {n: p for n, p in task["parts"].items() if task["reads"][n] not in self._sizes}
        whole = {name: v for name, v in task["reads"].items() if name not in parts}
        with ThreadPoolExecutor(TRANSFERS) as pool:
            list(pool.map(self._fetch, {*whole.values()} - self._sizes.keys()))
            list(pool.map(lambda n: self._fill(n, task["reads"][n], parts[n]), parts))
        for name, version in whole.items():
            self._used(version)
            _link(self._objects / version, self._path(name))

    def _fill(self, name: str, version: str, parts: list[list[int]]) -> None:
        self._exchange.get_parts(version, parts, self._path(name))

    def _fetch(self, version: str) -> None:
        aside = self._objects / f"{version}.part"
        self._exchange.get(version, aside)
        aside.rename(self._objects / version)

    def _used(self, version: str) -> None:
        size = self._sizes.pop(version, None)
        if size is None:
            size = (self._objects / version).stat().st_size
        self._sizes[version] = size

    def take(self, task: Task) -> dict[str, str]:
        """Puts what the task wrote into the exchange; {path: version}. RunFailed where that is not
        what it says that it writes."""
        name = task["function"]
        written_paths = {self.to_driver(str(p)) for p in Path(self.root).rglob("*") if p.is_file()}
        named = {*task["reads"], *task["writes"], *task["may"]}
        for path in sorted(written_paths - {_absolute(t) for t in named}):
            raise RunFailed(f"{name} wrote {path}, which {name}_files does not name")
        wrote = {}
        for path in (*task["writes"], *task["may"]):
            written = self._path(path)
            if not written.is_file():
                if path in task["may"]:
                    continue
                raise RunFailed(f"{name} did not write {path}, which {name}_files names")
            wrote[path] = version_of(written)
            if wrote[path] not in self._sizes:
                _link(written, self._objects / wrote[path])
            self._used(wrote[path])
        new = sorted({*wrote.values()} - {*task["reads"].values()})
        with ThreadPoolExecutor(TRANSFERS) as pool:
            list(pool.map(lambda v: self._exchange.put(self._objects / v, v), new))
        return wrote

    def trim(self, task: Task) -> None:
        """Removes what was not used for longest, beyond what may stay."""
        remove(Path(self.root), inside=self.folder)
        most = min(task["kept_bytes"], shutil.disk_usage(self.folder).free // FREE_SHARE)
        total = sum(self._sizes.values())
        for version in list(self._sizes):
            if total <= most:
                break
            total -= self._sizes.pop(version)
            remove(self._objects / version, inside=self._objects)

    def to_local(self, value: Any) -> Any:
        """A JSON value with the driver's paths as those in `files`."""
        if isinstance(value, str):
            moves = self._in_out(value) or value in self._outside
            return str(self._path(value)) if moves else value
        if isinstance(value, dict):
            return {k: self.to_local(v) for k, v in value.items()}
        return [self.to_local(v) for v in value] if isinstance(value, list) else value

    def to_driver(self, value: Any) -> Any:
        """A JSON value as the driver understands it."""
        if isinstance(value, str):
            return value.replace(self.root, "")
        if isinstance(value, dict):
            return {k: self.to_driver(v) for k, v in value.items()}
        return [self.to_driver(v) for v in value] if isinstance(value, list) else value

    def _in_out(self, name: str) -> bool:
        return name == self._out or name.startswith(self._out + os.sep)

    def _path(self, name: str) -> Path:
        return Path(self.root + _absolute(name))

    def close(self) -> None:
        """Removes the folder."""
        remove(self.folder, inside=self.folder.parent)
        self._lock.close()


def sweep() -> None:
    """Removes the folders of processes of this machine that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError), open(folder / LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder, inside=folder.parent)


def _absolute(name: str) -> str:
    """Without steps up, which would lead out of the folder."""
    return os.path.normpath(Path.cwd() / name)


def _link(source: Path, target: Path) -> None:
    from curate.corpus.indexes import link

    link(source, target)
