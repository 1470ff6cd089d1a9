"""The Ray engine: the same tasks and functions as the local one, on the machines of a cluster.

A worker is an actor of one CPU (`Host`). Ray places workers, carries tasks (JSON, some hundred
bytes) and tells when a machine is gone; documents go through files, never through Ray's object
store, so that what is done stays done when the driver dies. A task whose machine is lost is given
to another worker.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from curate.engines import idle_workers
from curate.engines.base import Death, OnDeath, Task, WorkerBug, failure, refill
from curate.engines.local import LocalEngine
from curate.errors import CurateError, RunFailed, UsageError
from curate.version import __version__

LOST = 3  # so often a task's machine may be lost
OBJECT_STORE = 80 << 20  # bytes; nothing of size lies in it
REACH_SECONDS = 10
END_SECONDS = 5
# Variables that decide what steps do, and where they are.
HANDED_ON = ("LLMCURATE_", "PYTHONPATH")
INSTALL = 'pip install "llmcurate[ray]"'


class _Died(Exception):
    """Leaves LocalEngine.map after a death; what follows is for the driver to say."""


class Host:
    """One worker of the Ray engine: an actor that keeps a worker process of the local engine.

    The process is the same as on one machine: its threads, its memory, its answers, the way its
    death is told. It loads steps and their models once and keeps them as long as the actor lives,
    and it ends with the actor. The actor itself runs no code of a step, so that what kills a worker
    is seen as it is on one machine, and is blamed on the same documents.

    environment: variables that decide what steps do, as the driver has them;
    folder: the driver's working folder, which relative paths start from."""

    def __init__(self, environment: dict[str, str], folder: str) -> None:
        os.environ.update(environment)
        if Path(folder).is_dir():
            os.chdir(folder)
        idle_workers.start()  # so that it loads its libraries while others are still being placed
        self._engine = LocalEngine(1)
        self._exchanged = False  # whether its workers have folders of their own

    def hello(self, files: list[str]) -> dict[str, Any]:
        """Who this is, and which of the driver's files cannot be seen from here."""
        from curate.version import __version__

        missing = [f for f in files if not Path(f).exists()]
        return {"version": __version__, "node": socket.gethostname(), "missing": missing}

    def end(self) -> None:
        """Ends the worker process; the actor is of no use afterwards."""
        self._engine.close()
        idle_workers.stop()
        if self._exchanged:
            from curate.engines.exchange_worker import sweep

            sweep()

    def run(self, function: str, task: Task) -> dict[str, Any]:
        """{"result": ..., "cpu": seconds}, {"death": [status, documents]} or {"error": ...} of one
        task."""
        began = self._engine.cpu
        self._exchanged = self._exchanged or "exchange" in task
        deaths: list[Death] = []

        def on_death(task: Task, death: Death) -> Task:
            deaths.append(death)
            raise _Died

        try:
            ((_, result),) = list(self._engine.map(function, [task], on_death))
        except _Died:
            return {"death": [deaths[0].status, deaths[0].documents]}
        except WorkerBug as error:
            return {"error": {"kind": "bug", "message": str(error), "traceback": error.trace}}
        except CurateError as error:
            code = error.exit_code
            return {"error": {"kind": "known", "message": str(error), "code": code}}
        return {"result": result, "cpu": self._engine.cpu - began}


class RayEngine:
    """Use as a context manager.

    workers: 0 for one a CPU of the cluster; most: of tasks that there will be at once; address: of
    a cluster that runs (`auto`, `HOST:PORT`, `ray://HOST:PORT`), none: one is started on this
    machine; shared: files that every machine must see. UsageError where Ray, the cluster or these
    are not there.
    """

    def __init__(
        self,
        workers: int = 0,
        most: int | None = None,
        address: str | None = None,
        tick: Callable[[], None] = lambda: None,
        shared: Iterable[str] = (),
    ) -> None:
        self._workers_asked, self._most, self._address = workers, most, address
        self._tick, self._shared = tick, list(shared)
        self._ray: Any = None
        self._connected_here = False  # whether this engine connected to the cluster
        self._count = 1  # of workers, known once there is a cluster
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, Task | None]] = {}  # answers to come: actor and task
        self._lost: Counter[str] = Counter()
        self.nodes: set[str] = set()
        self.cpu = 0.0

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no call home
        # Workers ask for no GPU; else Ray would hide those that models of steps may use.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise UsageError(f"--engine ray needs Ray: {INSTALL}") from None
        self._ray = ray
        try:
            if self._address:
                _check_reachable(self._address)
            if not ray.is_initialized():
                self._connected_here = True
                self._init(ray)
        except (OSError, RuntimeError, ValueError) as error:
            address = f"at {self._address}" if self._address else "here"
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise UsageError(f"no Ray cluster {address} ({lines[0]}): is it running?") from None
        cpus = int(ray.cluster_resources().get("CPU", 0))
        count = self._workers_asked or max(1, cpus)
        if cpus < 1:
            raise UsageError("the Ray cluster has no CPU to give")
        self._count = count if self._most is None else min(count, max(1, self._most))

    def _init(self, ray: Any) -> None:
        """Connects to the cluster, or starts one."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self._address:
            ray.init(self._address, **quiet)
            return
        store = {"object_store_memory": OBJECT_STORE}
        ray.init(
            "local", num_cpus=self._workers_asked or None, include_dashboard=False, **store, **quiet
        )

    def _start(self) -> None:
        """Asks for one more worker; it is idle when it has answered."""
        environment = {k: v for k, v in os.environ.items() if k.startswith(HANDED_ON)}
        make = self._ray.remote(Host).options(num_cpus=1, scheduling_strategy="SPREAD")
        actor = make.remote(environment, str(Path.cwd()))
        self._busy[actor.hello.remote(self._shared)] = (actor, None)

    def _accept_host(self, hello: dict[str, Any]) -> None:
        if hello["version"] != __version__:
            raise UsageError(
                f"{hello['node']} of the Ray cluster has llmcurate {hello['version']}, this is"
                f" {__version__}: install the same on all machines"
            )
        if hello["missing"]:
            raise UsageError(
                f"{hello['node']} of the Ray cluster does not see {hello['missing'][0]}: use a"
                " folder that all machines share, or a URL"
            )
        self.nodes.add(hello["node"])

    def map(
        self, function: str, tasks: Iterable[Task], on_death: OnDeath | None = None
    ) -> Iterator[tuple[Task, dict[str, Any]]]:
        """As Engine.map."""
        waiting: deque[Task] = deque()
        source = iter(tasks)
        try:
            while refill(waiting, source, self._count) or any(t for _, t in self._busy.values()):
                if self._ray is None and waiting:
                    self._connect()
                    refill(waiting, source, self._count)
                self._send_tasks(function, waiting)
                for actor, task, message in self._replies():
                    if message is None:
                        if task is not None:
                            waiting.appendleft(self._task_after_death(function, task))
                        continue
                    if task is None:
                        self._accept_host(message)
                        self._idle.append(actor)
                        continue
                    self._idle.append(actor)
                    if "death" in message:
                        status, documents = message["death"]
                        death = Death(status, tuple(documents) if documents else None)
                        if on_death is None:
                            raise RunFailed(f"a worker died ({death.describe()})")
                        waiting.appendleft(on_death(task, death))
                    elif "error" in message:
                        raise failure(message["error"])
                    else:
                        self.cpu += message["cpu"]
                        yield task, message["result"]
                self._tick()
        except BaseException:
            self.close()
            raise

    def _send_tasks(self, function: str, waiting: deque[Task]) -> None:
        starting = sum(task is None for _, task in self._busy.values())
        while len(self._idle) + starting < len(waiting) and (
            len(self._idle) + len(self._busy) < self._count
        ):
            self._start()
            starting += 1
        while waiting and self._idle:
            actor, task = self._idle.pop(), waiting.popleft()
            self._busy[actor.run.remote(function, task)] = (actor, task)

    def _replies(self) -> Iterator[tuple[Any, Task | None, dict[str, Any] | None]]:
        """(actor, task, answer) of what has come; no answer where the machine is lost."""
        if not self._busy:
            return
        lost = self._ray.exceptions.RayError
        ready, _ = self._ray.wait(list(self._busy), num_returns=len(self._busy), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=0.5)
        for answer in ready:
            actor, task = self._busy.pop(answer)
            try:
                message = self._ray.get(answer)
            except self._ray.exceptions.OutOfMemoryError:
                raise failure({"kind": "memory"}) from None
            except lost as error:
                if task is None:
                    self._task_after_death("hello", {"why": str(error).strip().splitlines()[0]})
                message = None
            yield actor, task, message

    def _task_after_death(self, function: str, task: Task) -> Task:
        """The task for another worker; RunFailed where that has been tried too often."""
        name = f"{task.get('function', function)} {task.get('part', '')}"
        self._lost[name] += 1
        if self._lost[name] > LOST:
            why = task.get("why") or "see Ray's logs"
            raise RunFailed(
                f"Ray lost the worker of {name.strip()} {LOST + 1} times ({why}); run again, it"
                " resumes"
            )
        return task

    def close(self) -> None:
        """Ends all workers; a cluster started here goes with them."""
        if self._ray is None:
            return
        actors = [*self._idle, *(actor for actor, _ in self._busy.values())]
        if self._ray.is_initialized():
            ending = [actor.end.remote() for actor in self._idle]
            if ending:
                self._ray.wait(ending, num_returns=len(ending), timeout=END_SECONDS)
            for actor in actors:
                self._ray.kill(actor)
            if self._connected_here:
                self._ray.shutdown()
        self._idle.clear()
        self._busy.clear()
        self._ray = None


def _check_reachable(address: str) -> None:
    """OSError where nobody listens at HOST:PORT; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        if address != "auto":
            raise OSError("an address is HOST:PORT, ray://HOST:PORT or auto")
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS):
        pass
