"""Workers on other machines: the host that each of them is, and the loop that gives them tasks.

A host keeps a process of the local engine, so that models, memory and deaths are the same on a
cluster as on one machine. What a cluster adds is that a host may be lost, with its machine or at
the end of its time: the task that it had goes to another one.
"""

from __future__ import annotations

import os
import socket
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from curate.engines import idle_workers
from curate.engines.base import Answer, Call, Death, Done, Failed, Hello, TaskLoop, Verbatim, refill
from curate.engines.local import LocalEngine
from llmcurate.base.disk.files import temporary_name
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.messages import encode
from llmcurate.version import __version__

# So often a task's worker may be lost; and where the cluster loses others all the time.
LOST, LOST_AMONG_OTHERS = 3, 9
# Variables that decide what steps do, and where they are.
HANDED_ON = ("LLMCURATE_", "PYTHONPATH")


def handed_on() -> dict[str, str]:
    """The variables of this process that hosts need."""
    return {k: v for k, v in os.environ.items() if k.startswith(HANDED_ON)}


class _Died(Exception):
    """Leaves LocalEngine.map after a death; what follows is for the driver to say."""


class Host:
    """One worker of a cluster: it keeps a worker process of the local engine.

    The process is the same as on one machine: its threads, its memory, its answers, the way its
    death is told. It loads steps and their models once and keeps them as long as the host lives,
    and it ends with the host. The host itself runs no code of a step, so that what kills a worker
    is seen as it is on one machine, and is blamed on the same documents.

    environment: variables that decide what steps do, as the driver has them;
    folder: the driver's working folder, which relative paths start from;
    tick: called at least twice a second while a task is worked on."""

    def __init__(
        self, environment: dict[str, str], folder: str, tick: Callable[[], None] = lambda: None
    ) -> None:
        os.environ.update(environment)
        if Path(folder).is_dir():
            os.chdir(folder)
        idle_workers.start()  # so that it loads its libraries while others are still being placed
        self._engine = LocalEngine(1, tick)

    def hello(self, files: Iterable[str], name: str = "") -> Hello:
        """Who this is, and which of the driver's files cannot be seen here. name: `Hello.id`."""
        missing = tuple(f for f in files if not Path(f).exists())
        return Hello(__version__, socket.gethostname(), missing, name)

    def end(self) -> None:
        """Ends the worker process; the host is of no use afterwards."""
        self._engine.close()
        idle_workers.stop()

    def run(self, call: Call) -> Answer:
        """The answer to one call."""
        began = self._engine.cpu
        deaths: list[Death] = []

        def on_death(task: Verbatim, death: Death) -> Verbatim:
            deaths.append(death)
            raise _Died

        try:
            tasks = [Verbatim(call.task)]
            ((_, result),) = list(self._engine.map(call.function, tasks, Verbatim, on_death))
        except _Died:
            return deaths[0]
        except LlmcurateError as error:
            return Failed.of(error)
        return Done(result.text, self._engine.cpu - began)


class HostsEngine(TaskLoop):
    """An engine whose workers are hosts; a subclass starts them and carries tasks and answers. Use
    as a context manager.

    most: of tasks that there will be at once; tick: called twice a second; folder: of the run,
    which every machine must see; shared: files that they must see as well.

    A subclass keeps `_idle`, workers that have said hello and have no task, and `_busy`, the others
    that it knows with their task, or None before their hello, each under what its answer comes by.
    `_answers` moves them from one to the other.
    """

    name: str  # of the cluster, for messages
    logs: str  # where its workers' messages are

    def __init__(
        self,
        most: int | None,
        tick: Callable[[], None],
        folder: Path | None,
        shared: Iterable[str],
    ) -> None:
        super().__init__(1, tick)  # how many workers is known once there is a cluster
        self._most = most
        self._folder, self._shared = folder, [*map(Path, shared)]
        self._marker: Path | None = None
        self._connected = False
        self._idle: list[Any] = []
        self._busy: dict[Hashable, tuple[Any, Any]] = {}
        self._function = ""  # that is mapped
        self._losses: dict[Hashable, int] = {}  # workers, or machines with them, in order
        self._lost: defaultdict[int, set[int]] = defaultdict(set)  # those of each task, by its hash
        self.nodes: set[str] = set()

    @abstractmethod
    def _connect(self) -> None:
        """Reaches the cluster and sets `_count`; UsageError where that cannot be."""

    @abstractmethod
    def _starting(self) -> int:
        """How many workers were asked for and have not said hello."""

    @abstractmethod
    def _start(self, count: int) -> None:
        """Asks for so many more workers, now or when it is called again."""

    @abstractmethod
    def _hand_out(self, worker: Any, call: Call, task: Any) -> None:
        """Calls a worker, which is busy with a task from now on."""

    def must_see(self) -> list[str]:
        """The paths that a worker looks for before its first task. In the run's folder it is a
        marker, since a folder of that name may be on every machine; its name is new, since a file
        system may remember for a while that a file was not there."""
        paths = [*self._shared]
        if self._folder is not None:
            if self._marker is None:
                self._marker = self._folder / temporary_name("seen-by-all")
                self._marker.touch()
            paths.insert(0, self._marker)
        relative = not all(path.is_absolute() for path in paths)
        return [*(str(path.absolute()) for path in paths), *([str(Path.cwd())] if relative else [])]

    def close(self) -> None:
        """Ends all workers, and removes the marker."""
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
            self._hand_out(self._idle.pop(), Call(function, encode(task).decode()), task)

    def _accept(self, hello: Hello) -> None:
        """Takes a worker up; UsageError where it is another version or does not see a file."""
        if hello.version != __version__:
            raise UsageError(
                f"{hello.node} of the {self.name} cluster has llmcurate {hello.version}, this"
                f" is {__version__}: install the same on all machines"
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
        """Notes that a task (None: one that had not begun) has lost its worker. lost: what was lost
        with it, a machine or this worker alone, which is what none stands for.

        RunFailed where that was too often for chance: three quarters of all that was lost since the
        first time was lost with this task. It may be what takes the memory of its machines; where
        machines are rented for as long as nobody else pays more, they go with any task."""
        work = "a worker that was starting"
        if task is not None:
            name = getattr(task, "function", self._function)
            work = f"the worker of {name} {getattr(task, 'part', '')}".rstrip()
        number = len(self._losses)
        losses = self._lost[hash(encode(task))]  # a part of one stage is another's as well
        losses.add(self._losses.setdefault(number if lost is None else lost, number))
        since_first = len(self._losses) - min(losses)
        most = LOST if 4 * len(losses) >= 3 * since_first else LOST_AMONG_OTHERS
        if len(losses) > most:
            raise RunFailed(
                f"{self.name} lost {work} {len(losses)} times ({why or f'see {self.logs}'});"
                " run again, it resumes"
            )
