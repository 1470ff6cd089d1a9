"""An engine whose workers share no folder with the driver: files go through an exchange.

It wraps another engine. Before a task is handed out, what it reads is put into the exchange, unless
it is there. What a worker wrote is in the exchange; the caller gets the result when OUT has what it
may read of that, and of the rest the versions, which later tasks are handed without anything being
read here (disk/elsewhere.py).

What a task reads and writes it says itself: beside a function NAME stands NAME_files, which gives
{"reads": paths, "writes": paths} of a task, and where there are such, `may`: paths that it writes
if there is reason to; `stay`: those of the paths it writes that other tasks alone read; `parts`:
{path: ranges [first, end) of bytes} of files that it reads no other bytes of. Who wants to read
what stays all the same calls `Storage.fetch`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from curate.engines.base import Death, Engine, OnDeath, Task
from curate.engines.exchange import TRANSFERS, Exchange, put_elsewhere, version_of
from llmcurate.base.disk.elsewhere import all_files, check_version, version_elsewhere
from llmcurate.base.disk.files import replacing
from llmcurate.base.errors import RunFailed

WORK = "curate.engines.exchange_worker:work"
BEHIND = 16  # results whose files are on their way, while workers have their next tasks
KEPT_BYTES = 32 << 30  # of objects that a worker keeps for later tasks, the last used ones

Files = Callable[[Task], dict[str, Any]]
# Device, inode, size and time of change: the same content, also after a rename.
Stamp = tuple[int, int, int, int]


def files_of(function: str) -> Files:
    """What says which files a task of "module:function" reads and writes."""
    function_files: Files = resolve_name(f"{function}_files")
    return function_files


def stamp_of(path: str | Path) -> Stamp:
    """Of a file that is there."""
    stat = Path(path).stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class ExchangeEngine:
    """Use as a context manager. When it ends without an error, the exchange holds the content of
    files of OUT and nothing else.

    behind: how many results may wait for their files; kept_bytes: of objects in a worker's folder.
    """

    def __init__(
        self,
        inner: Engine,
        exchange: Exchange,
        behind: int = BEHIND,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._inner, self._exchange = inner, exchange
        self._behind, self._kept_bytes = behind, kept_bytes
        self._out = str(exchange.out)
        self.cpu = 0.0  # seconds, as the wrapped engine's
        self._puts, self._results = (ThreadPoolExecutor(TRANSFERS) for _ in range(2))
        self._versions: dict[Stamp, str] = {}  # of files here that have been seen
        self._known: set[str] = set()  # versions that files had while this process looked
        self._outside: set[str] = set()  # files outside of OUT, which is looked through

    def __enter__(self) -> ExchangeEngine:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)
        self._results.shutdown(cancel_futures=True)
        self._puts.shutdown(cancel_futures=True)
        if error[0] is None:
            self._exchange.end()

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        """As Engine.map."""
        files = files_of(function)
        self._free()

        def died(task: Task, death: Death) -> Task:
            assert on_death is not None
            return self._describe(function, files, on_death(task["payload"], death))

        described = (self._describe(function, files, task) for task in tasks)
        waiting: deque[tuple[Task, dict[str, Any], Future[None]]] = deque()
        for task, reply in self._inner.map(WORK, described, died if on_death else None):
            self.cpu = self._inner.cpu
            fetched = self._results.submit(self._fetch, task, reply["wrote"])
            waiting.append((task["payload"], reply["result"], fetched))
            while waiting and (waiting[0][2].done() or len(waiting) > self._behind):
                yield self._with_files(*waiting.popleft())
        while waiting:
            yield self._with_files(*waiting.popleft())

    def _with_files(
        self, task: Task, result: dict[str, Any], fetched: Future[None]
    ) -> tuple[Task, dict[str, Any]]:
        """A task and its result, whose files are in OUT."""
        fetched.result()
        return task, result

    def _describe(self, function: str, files: Files, task: Task) -> Task:
        """The task as a worker elsewhere does it, once what it reads is in the exchange."""
        touched = files(task)
        reads = list(dict.fromkeys(touched["reads"]))
        versions = self._puts.map(self._put, reads)
        return {
            "part": task.get("part"),
            "function": function,
            "payload": task,
            "reads": dict(zip(reads, versions, strict=True)),
            "writes": touched["writes"],
            "may": touched.get("may", []),
            "stay": touched.get("stay", []),
            "parts": touched.get("parts", {}),
            "out": self._out,
            "exchange": [self._exchange.url, self._exchange.run, self._exchange.store.wait],
            "kept_bytes": self._kept_bytes,
        }

    def _put(self, name: str) -> str:
        """The version of a file, which is in the exchange now."""
        path, stored = Path(name), self._exchange.stored
        if version := version_elsewhere(path):
            if version not in stored:
                raise RunFailed(f"{self._exchange.store.url} lacks {name}: run again, it goes on")
            return version
        version = self._versions.get(stamp_of(path))
        if version is None:
            version = self._versions[stamp_of(path)] = version_of(path)
        if version not in stored:
            self._exchange.put(path, version)
        self._known.add(version)
        if not name.startswith(self._out + os.sep):
            self._outside.add(name)
        return version

    def _fetch(self, task: Task, wrote: dict[str, str]) -> None:
        """Brings into OUT what a task wrote; of what stays, the version. RunFailed where the worker
        names other files than the task does."""
        for name, version in wrote.items():
            if name not in task["writes"] and name not in task["may"]:
                raise RunFailed(
                    f"a worker of {task['function']} says that it wrote {name[:200]!r}, which it"
                    " was not asked for: see what else runs there, and run again, it goes on"
                )
            check_version(version)
        self._exchange.stored.update(wrote.values())
        self._known.update(wrote.values())
        for name, version in wrote.items():
            if name in task["stay"]:
                put_elsewhere(Path(name), version)
                continue
            with replacing(Path(name)) as aside:
                self._exchange.get(version, aside)
            self._versions[stamp_of(name)] = version

    def _free(self) -> None:
        """Removes from the exchange what is no file's content any more."""
        stamps, used = set[Stamp](), set[str]()
        for entry, version in all_files(self._exchange.out):
            if version:
                used.add(version)
            else:
                stamps.add(stamp_of(entry.path))
        stamps.update(stamp_of(name) for name in self._outside if Path(name).is_file())
        self._versions = {s: v for s, v in self._versions.items() if s in stamps}
        unused = (self._known & self._exchange.stored) - used - {*self._versions.values()}
        self._exchange.remove(unused)
        self._known -= unused
