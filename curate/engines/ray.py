"""The Ray engine: runs the same tasks and functions as the local one on the machines of a cluster.
A worker is an actor of one CPU (`RayHost`). Ray places workers, carries tasks (JSON) and reports
lost machines. Documents go through files, never through Ray's object store, so finished work
survives the driver. This engine gives tasks only to idle workers: a task given to an actor waits
for that actor even if its machine never returns."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from curate.engines.base import Answer, Call, Failed, Hello, Jobs
from curate.engines.hosts import Host, HostsEngine, host_environment
from llmcurate.base.disk.store import LOCAL
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import say

OBJECT_STORE = 80 << 20  # bytes; it holds nothing large
REACH_SECONDS = 10
END_SECONDS = 5
LOOK_SECONDS = 5.0  # between two looks at the nodes
WAIT_SECONDS = 20.0  # for the first worker, before a message
REPORT_SECONDS = 600.0  # between two such messages
IDLE_LOOKS = 12  # looks in a row with idle workers, after which these are ended
# Ray's reasons (NodeDeathInfo) of a planned end: ended in order, preempted, idle.
PLANNED_ENDS = (1, 3, 4)
INSTALL = 'pip install "llmcurate[ray]"'


class RayHost(Host):
    def hello(self, files: Iterable[str], name: str = "") -> Hello:
        import ray

        return super().hello(files, name or ray.get_runtime_context().get_node_id())


class _Worker(NamedTuple):
    actor: Any
    node: str = ""  # empty until it has said hello


class _Node(NamedTuple):
    alive: bool
    has_left: bool
    host: str
    cpus: float

    @classmethod
    def of(cls, node: Any) -> _Node:
        left = node.get("DeathReason") in PLANNED_ENDS
        return cls(
            node["Alive"], left, node["NodeManagerHostname"], node["Resources"].get("CPU", 0)
        )


class RayEngine(HostsEngine):
    """An engine on a Ray cluster, to be used as a context manager. Raises UsageError if Ray, the
    cluster or a file is missing. `workers` is the number of workers; 0 means one per CPU of the
    cluster, including nodes that join. `most` is the largest number of tasks at one time. `address`
    is the address of a running cluster (`auto`, `HOST:PORT`, `ray://HOST:PORT`); with None a
    cluster is started on this machine. Every machine must see the files in `shared`. Every machine
    must also see the run's folder, `jobs.folder`, if the run is not at a URL (`jobs.store`).
    `jobs.quiet` turns off messages on nodes."""

    name = "Ray"
    logs = "Ray's logs"

    def __init__(
        self,
        workers: int = 0,
        most: int | None = None,
        address: str | None = None,
        tick: Callable[[], None] = lambda: None,
        jobs: Jobs | None = None,
        shared: Iterable[str] = (),
    ) -> None:
        store = jobs.store if jobs else LOCAL
        folder = jobs.folder if jobs and not store.url else None
        super().__init__(most, tick, folder, shared, store)
        self._quiet = jobs is not None and jobs.quiet
        self._nodes: dict[str, _Node] = {}  # as of the last look
        self._own_node: str | None = None  # whose agent carries this process's messages
        self._looked_at = 0.0
        self._report_at = 0.0  # when to report that no worker has started
        self._idle_looks = 0  # in a row
        self._workers_asked, self._address = workers, address
        self._ray: Any = None
        self._connected_here = False  # whether this engine connected to the cluster

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no call home
        # Workers ask for no GPU. Without this, Ray would hide the GPUs that models may use.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray prints the last log lines of every lost node; this engine reports it in one line.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
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
        if not (self._address or "").startswith("ray://"):  # a ray:// client has no node
            self._own_node = ray.get_runtime_context().get_node_id()
        self._report_at = time.monotonic() + WAIT_SECONDS
        self._look()

    def _init(self, ray: Any) -> None:
        job = None
        if not (self._address or "").startswith("ray://"):
            job = ray.job_config.JobConfig()
            # Otherwise Ray puts the working folder first in the module path of its workers.
            job._runtime_env_has_working_dir = lambda: True
        init = partial(ray.init, log_to_driver=False, logging_level="ERROR", job_config=job)
        if self._address:
            init(self._address)
        else:
            cpus = self._workers_asked or None
            init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=OBJECT_STORE)

    def _starting(self) -> int:
        return sum(task is None for _, task in self._busy.values())

    def _start(self, count: int) -> None:
        make = self._ray.remote(RayHost).options(num_cpus=1, scheduling_strategy="SPREAD")
        for _ in range(count):
            actor = make.remote(host_environment(), str(Path.cwd()))
            self._busy[actor.hello.remote(self.must_see())] = (_Worker(actor), None)

    def _send_tasks(self, function: str, waiting: deque[Any], source: Iterator[Any]) -> None:
        looks = self._connected and time.monotonic() - self._looked_at > LOOK_SECONDS
        if looks:
            self._look()
        super()._send_tasks(function, waiting, source)
        if not self._idle:
            self._idle_looks = 0
        elif looks:
            self._idle_looks += 1
            if self._idle_looks > IDLE_LOOKS:
                starting = [key for key, (_, task) in self._busy.items() if task is None]
                self._end([*self._idle, *(self._busy.pop(key)[0] for key in starting)])
                self._idle.clear()

    def _hand_out(self, worker: Any, call: Call, task: Any) -> None:
        self._busy[worker.actor.run.remote(call)] = (worker, task)

    def _answers(self) -> Iterator[tuple[Any, Answer | None]]:
        if self._gone(self._own_node):
            yield from self._connect_again()
            return
        if not self._busy:
            return
        self._ray.wait(list(self._busy), num_returns=1, timeout=0.5)
        ready, _ = self._ray.wait(list(self._busy), num_returns=len(self._busy), timeout=0)
        lost: list[tuple[_Worker, Any, str]] = []
        for reference in ready:
            worker, task = self._busy.pop(reference)
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.OutOfMemoryError:
                raise Failed("memory").error() from None
            except self._ray.exceptions.RayError as error:
                self._ray.kill(worker.actor)  # it may be alive but unreachable
                lost.append((worker, task, str(error).strip().splitlines()[0]))
                continue
            if task is None:
                worker = worker._replace(node=answer.id)
                self._accept(answer)
            self._idle.append(worker)
            if task is not None:
                yield task, answer
        if lost:
            self._look()
        for worker, task, why in lost:
            if not self._gone(worker.node):
                self._count_loss(task, why="" if task else why)
            elif not self._nodes[worker.node].has_left:
                self._count_loss(task, worker.node)
            if task is not None:
                yield task, None

    def _gone(self, node: str | None) -> bool:
        return node in self._nodes and not self._nodes[node].alive

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        try:
            nodes = {node["NodeID"]: _Node.of(node) for node in self._ray.nodes()}
        except (RuntimeError, self._ray.exceptions.RayError):
            return  # the head does not answer; Ray waits a minute for it
        before, self._nodes = self._nodes, nodes
        alive = {name: node for name, node in nodes.items() if node.alive}
        cpus = int(sum(node.cpus for node in alive.values()))
        self._count = self._workers_asked or max(1, cpus)
        if self._most is not None:
            self._count = min(self._count, max(1, self._most))
        self._idle = [worker for worker in self._idle if not self._gone(worker.node)]
        cluster = f"{counted(len(alive), 'machine')} with {counted(cpus, 'CPU')}"
        for name in before:
            if before[name].alive and self._gone(name) and name != self._own_node:
                host = nodes[name].host
                gone = f"{host} has left" if nodes[name].has_left else f"lost {host}"
                self._report(f"{gone}; now {cluster}")
        joined = sum(name not in before for name in alive)
        if before and joined:
            self._report(f"{counted(joined, 'machine')} joined; now {cluster}")
        if self._idle or self._working():
            self._report_at = self._looked_at + WAIT_SECONDS
        elif self._looked_at > self._report_at:
            self._report_at = self._looked_at + REPORT_SECONDS
            self._report(f"no worker has started on {cluster}: `ray status` says why")

    def _report(self, message: str) -> None:
        say(f"ray: {message}", self._quiet)

    def _connect_again(self) -> Iterator[tuple[Any, None]]:
        """Disconnect from the cluster, because the agent (raylet) that carried this process's
        messages is lost. Ray reports nothing then and sends no further answers. The next task
        connects again."""
        self._report("lost the agent of this machine; connecting again")
        old_node, busy = self._own_node, list(self._busy.values())
        self.close()
        for worker, task in busy:
            if worker.node == old_node:
                self._count_loss(task, old_node)
            if task is not None:
                yield task, None

    def _end(self, workers: list[_Worker]) -> None:
        ending = [worker.actor.end.remote() for worker in workers if worker.node]
        if ending:
            self._ray.wait(ending, num_returns=len(ending), timeout=END_SECONDS)
        for worker in workers:
            self._ray.kill(worker.actor)

    def close(self) -> None:
        super().close()
        if self._ray is None:
            return
        if self._ray.is_initialized():
            self._end(self._idle)
            for worker, _ in self._busy.values():
                self._ray.kill(worker.actor)
            if self._connected_here:
                self._ray.shutdown()
        self._idle.clear()
        self._busy.clear()
        self._ray = self._own_node = None
        self._connected = False
        self._nodes.clear()


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT. Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        if address != "auto":
            raise OSError("an address is HOST:PORT, ray://HOST:PORT or auto")
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS):
        pass
