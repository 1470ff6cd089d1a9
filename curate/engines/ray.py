"""The Ray engine: the same tasks and functions as the local one, on the machines of a cluster.

A worker is an actor of one CPU (`Host`). Ray places workers, carries tasks (JSON, some hundred
bytes) and tells when a machine is gone; documents go through files, never through Ray's object
store, so that what is done stays done when the driver dies.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from curate.engines.base import Task, failure
from curate.engines.hosts import Host, HostsEngine, handed_on
from curate.errors import UsageError
from curate.terminal.progress import say

OBJECT_STORE = 80 << 20  # bytes; nothing of size lies in it
REACH_SECONDS = 10
END_SECONDS = 5
LOOK_SECONDS = 5.0  # between two looks at the nodes
INSTALL = 'pip install "llmcurate[ray]"'


class RayEngine(HostsEngine):
    """Use as a context manager.

    workers: 0 for one a CPU of the cluster; most: of tasks that there will be at once; address: of
    a cluster that runs (`auto`, `HOST:PORT`, `ray://HOST:PORT`), none: one is started on this
    machine; shared: files that every machine must see; quiet: whether nobody is told of nodes that
    are lost. UsageError where Ray, the cluster or these are not there.
    """

    name = "Ray"
    logs = "Ray's logs"

    def __init__(
        self,
        workers: int = 0,
        most: int | None = None,
        address: str | None = None,
        tick: Callable[[], None] = lambda: None,
        shared: Iterable[str] = (),
        quiet: bool = False,
    ) -> None:
        super().__init__(most, tick, shared)
        self._quiet = quiet
        self._alive: set[str] = set()  # nodes, when they were looked at
        self._looked_at = 0.0
        self._own_node: str | None = None  # whose agent carries this process's messages
        self._workers_asked, self._address = workers, address
        self._ray: Any = None
        self._connected_here = False  # whether this engine connected to the cluster

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
        if not (self._address or "").startswith("ray://"):  # a client has none
            self._own_node = ray.get_runtime_context().get_node_id()
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

    def _starting(self) -> int:
        return sum(task is None for _, task in self._busy.values())

    def _start(self, count: int) -> None:
        make = self._ray.remote(Host).options(num_cpus=1, scheduling_strategy="SPREAD")
        for _ in range(count):
            actor = make.remote(handed_on(), str(Path.cwd()))
            self._busy[actor.hello.remote(self._shared)] = (actor, None)

    def _hand_out(self, worker: Any, function: str, task: Task) -> None:
        self._busy[worker.run.remote(function, task)] = (worker, task)

    def _answers(self) -> Iterator[tuple[Task, dict[str, Any] | None]]:
        if not self._busy:
            return
        ready, _ = self._ray.wait(list(self._busy), num_returns=len(self._busy), timeout=0)
        if not ready and self._agent_lost():
            tasks = [task for _, task in self._busy.values() if task is not None]
            self.close()  # the next task connects again
            yield from ((task, None) for task in tasks)
            return
        if not ready:
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=0.5)
        for reference in ready:
            actor, task = self._busy.pop(reference)
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.OutOfMemoryError:
                raise failure({"kind": "memory"}) from None
            except self._ray.exceptions.RayError as error:
                if task is None:
                    self._count_loss("hello", str(error).strip().splitlines()[0])
                else:
                    yield task, None
                continue
            self._idle.append(actor)
            if task is None:
                self._accept(answer)
            else:
                yield task, answer

    def _agent_lost(self) -> bool:
        """Whether the agent (raylet) that carries this process's messages is gone: Ray does not
        tell, nor give any answer then. Says which other nodes are; of their workers Ray tells."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = time.monotonic()
        try:
            nodes = {node["NodeID"]: node for node in self._ray.nodes()}
        except (RuntimeError, self._ray.exceptions.RayError):
            return False  # the head does not answer; Ray waits for it for a minute
        before, self._alive = self._alive, {name for name in nodes if nodes[name]["Alive"]}
        gone = nodes.keys() - self._alive
        for name in sorted(before & gone - {self._own_node}):
            host = nodes[name]["NodeManagerHostname"]
            say(f"ray: lost {host}; the others take its tasks over", self._quiet)
        lost = self._own_node in gone
        if lost:
            say("ray: lost the agent of this machine; connecting again", self._quiet)
        return lost

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
        self._connected = False
        self._alive.clear()


def _check_reachable(address: str) -> None:
    """OSError where nobody listens at HOST:PORT; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        if address != "auto":
            raise OSError("an address is HOST:PORT, ray://HOST:PORT or auto")
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS):
        pass
