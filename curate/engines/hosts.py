"""Workers on other machines (hosts), and the engine that gives them tasks. A host runs a worker
process of the local engine, so models, memory and deaths are treated as on one machine. In
addition, a host may be lost with its machine or at the end of its time. Its task then goes to
another host."""

from __future__ import annotations

import os
import socket
import tempfile
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from curate.engines import idle_workers
from curate.engines.base import Answer, Call, Death, Done, Engine, Failed, Hello, Verbatim, refill
from curate.engines.local import LocalEngine
from llmcurate.base.disk.files import clear_dead, remove, temporary_name
from llmcurate.base.disk.store import LOCAL, Mirror, Store
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.messages import encode
from llmcurate.version import __version__

# The number of workers that a task may lose, and the number if the cluster loses many others too.
LOST, LOST_AMONG_OTHERS = 3, 9
# Variables that decide what steps do and where their code is.
HOST_VARIABLES = ("LLMCURATE_", "PYTHONPATH")


def host_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith(HOST_VARIABLES)}


class _Died(Exception):
    """Raised inside LocalEngine.map to leave it after a worker's death."""


class Host:
    """One worker of a cluster. It runs a worker process of the local engine, which loads steps and
    models once and ends with the host. The host itself runs no code of a step. So a step that
    crashes ends only the worker process, and the engine finds the document at fault as on one
    machine. `environment` holds the driver's variables that decide what steps do. `folder` is the
    driver's working folder, for relative paths. `tick` is called at least twice a second during a
    task. If OUT is a URL, the host has the files of OUT in a temporary folder."""

    def __init__(
        self, environment: dict[str, str], folder: str, tick: Callable[[], None] = lambda: None
    ) -> None:
        os.environ.update(environment)
        if Path(folder).is_dir():
            os.chdir(folder)
        idle_workers.start()  # loads its libraries while other hosts are being placed
        self._engine = LocalEngine(1, tick)
        self._store = LOCAL

    def hello(self, files: Iterable[str], name: str = "") -> Hello:
        """Return this worker's first message, which lists those of `files` that its machine
        lacks."""
        missing = tuple(f for f in files if not Path(f).exists())
        return Hello(__version__, socket.gethostname(), missing, name)

    def end(self) -> None:
        self._engine.close()
        idle_workers.stop()
        if self._store.url:
            remove(self._store.root, inside=self._store.root.parent)

    def _open(self, url: str) -> None:
        temporary = Path(tempfile.gettempdir())
        clear_dead(temporary, "store")  # of hosts that were killed
        folder = temporary / temporary_name("store")
        folder.mkdir(mode=0o700)
        self._store = Store(Mirror(url, folder, temporary=True))
        self._engine.mirror = self._store.mirror

    def run(self, call: Call) -> Answer:
        if call.store is not None and call.store.url != self._store.url:
            self._open(call.store.url)
        cpu_before = self._engine.cpu
        deaths: list[Death] = []

        def on_death(task: Verbatim, death: Death) -> Verbatim:
            deaths.append(death)
            raise _Died

        try:
            tasks = [Verbatim(self._store.places(call.task))]
            ((_, result),) = list(self._engine.map(call.function, tasks, Verbatim, on_death))
        except _Died:
            return deaths[0]
        except LlmcurateError as error:
            failed, store = Failed.of(error), self._store
            here = str(store.root)
            return replace(failed, message=failed.message.replace(here, store.url or here))
        return Done(self._store.names(result.text), self._engine.cpu - cpu_before)


class HostsEngine(Engine):
    """An engine whose workers are hosts: processes on the machines of a cluster. A subclass starts
    the hosts and passes on tasks and answers. `most` is the largest number of tasks at one time.
    `tick` is called twice a second. Every machine must see the run's `folder` and the files in
    `shared`.

    `_idle` holds the workers without a task. `_busy` holds all others as {handle: (worker, task)}:
    the handle is what the engine waits on for the worker's answer. A worker that is still starting
    is in `_busy` with task None. A subclass's method `_answers` moves workers between the two."""

    name: str  # the cluster's, for messages
    logs: str  # where to look for the workers' logs, for messages

    def __init__(
        self,
        most: int | None,
        tick: Callable[[], None],
        folder: Path | None,
        shared: Iterable[str],
        store: Store = LOCAL,
    ) -> None:
        super().__init__(1, tick)  # `_connect` sets the number of workers
        self._store = store
        self._most = most
        self._folder, self._shared = folder, [*map(Path, shared)]
        self._marker: Path | None = None
        self._connected = False
        self._idle: list[Any] = []
        self._busy: dict[Hashable, tuple[Any, Any]] = {}
        self._function = ""  # the function being mapped
        self._losses: dict[Hashable, int] = {}  # lost workers or machines, numbered in order
        self._lost: defaultdict[int, set[int]] = defaultdict(set)  # loss numbers by hash of task
        self.nodes: set[str] = set()

    @abstractmethod
    def _connect(self) -> None:
        """Connect to the cluster, and set `_count`, the number of workers. May raise UsageError."""

    @abstractmethod
    def _starting(self) -> int:
        """Return how many workers were asked for but have not yet said hello."""

    @abstractmethod
    def _start(self, count: int) -> None:
        """Ask the cluster for `count` more workers, or do nothing soon after an earlier request."""

    @abstractmethod
    def _hand_out(self, worker: Any, call: Call, task: Any) -> None:
        """Send a call to a worker and record that the worker is busy with the task."""

    def must_see(self) -> list[str]:
        """Return the paths that a worker checks before its first task. One is a new marker file in
        the run's folder, because every machine may have a folder of that name. The name of the
        marker is new, because a file system may remember for a while that a file was missing."""
        paths = [*self._shared]
        if self._folder is not None:
            if self._marker is None:
                self._marker = self._folder / temporary_name("seen-by-all")
                self._marker.touch()
            paths.insert(0, self._marker)
        relative = not all(path.is_absolute() for path in paths)
        return [*(str(path.absolute()) for path in paths), *([str(Path.cwd())] if relative else [])]

    def close(self) -> None:
        if self._marker is not None:
            self._marker.unlink(missing_ok=True)
            self._marker = None

    def _working(self) -> int:
        return sum(task is not None for _, task in self._busy.values())

    def _send_tasks(self, function: str, waiting: deque[Any], source: Iterator[Any]) -> None:
        if not self._connected:
            self._connect()
            self._connected = True
            refill(waiting, source, self._count)
        self._function = function
        needed = min(len(waiting), self._count - self._working())
        missing = needed - len(self._idle) - self._starting()
        if missing > 0:
            self._start(missing)
        while waiting and self._idle:
            task = waiting.popleft()
            text = self._store.names(encode(task).decode())
            self._hand_out(self._idle.pop(), Call(function, text, self._store.mirror), task)

    def _accept(self, hello: Hello) -> None:
        if hello.version != __version__:
            raise UsageError(
                f"{hello.node} of the {self.name} cluster has llmcurate {hello.version}, this"
                f" is {__version__}: install the same version on all machines"
            )
        if hello.missing:
            path = Path(hello.missing[0])
            advice = "use a folder that all machines share, or a URL"
            if self._marker is not None and path == self._marker.absolute():
                path = path.parent
                advice = (
                    "choose a folder that all machines share as OUT (as --scratch, if OUT is a URL)"
                )
            elif path == Path.cwd():
                advice = "name all files by absolute paths"
            raise UsageError(
                f"{hello.node} of the {self.name} cluster does not see {path}: {advice}"
            )
        self.nodes.add(hello.node)

    def _count_loss(self, task: object, lost: Hashable = None, why: str = "") -> None:
        """Record that a worker was lost with its task, or while it was starting (`task` is None).
        Workers of the same machine `lost` count as one loss. Raises RunFailed if a task has more
        losses than its limit. The limit is LOST_AMONG_OTHERS, because rented machines may be
        withdrawn during any task. The limit is only LOST if the task has three quarters or more of
        all losses since its first loss, because such a task may fill the memory of its machines."""
        work = "a worker that was starting"
        if task is not None:
            name = getattr(task, "function", self._function)
            work = f"the worker of {name} {getattr(task, 'part', '')}".rstrip()
        number = len(self._losses)
        losses = self._lost[hash(encode(task))]  # partition numbers repeat across stages
        losses.add(self._losses.setdefault(number if lost is None else lost, number))
        since_first = len(self._losses) - min(losses)
        most = LOST if 4 * len(losses) >= 3 * since_first else LOST_AMONG_OTHERS
        if len(losses) > most:
            raise RunFailed(
                f"{self.name} lost {work} {len(losses)} times ({why or f'see {self.logs}'});"
                " run again, it resumes"
            )
