"""The local engine: a pool of worker processes on this machine. It maps a function, named
"module:function", over tasks and yields results as they arrive. When a worker dies, `on_death`
returns the task to run instead, or raises an error. A worker that is silent for longer than the
limit in its last message is killed and counts as dead. If a worker has kernels to compile, one
extra process may help: it runs a task that the worker names."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from curate.engines import idle_workers
from curate.engines.base import (
    Answer,
    Beat,
    Call,
    Compiling,
    Death,
    Done,
    Engine,
    Ready,
    Waiting,
    WorkerMessage,
    read_line,
)
from llmcurate.base.disk.store import Mirror
from llmcurate.base.disk.units import counted
from llmcurate.base.messages import encode
from llmcurate.base.terminal import show_note

LOOK_SECONDS = 1.0  # of silence that count at most per look: answers were not read meanwhile
KERNEL_SECONDS = 120.0  # added to a worker's limit per kernel; none takes a tenth of this


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    task: Any = None
    buffer: bytearray = field(default_factory=bytearray)
    documents: tuple[int, int] | None = None
    # State inherited at the start, if the next engine may take the worker.
    began: object = None
    helps: bool = False  # compiles kernels; its results are ignored
    # `seconds` is the limit of silence (0: none). If `cpu` is set, to the CPU seconds used when the
    # limit began, the worker must also have used as many CPU seconds since. `silent` is the seconds
    # of silence so far. `late` is True if the worker was killed for its silence.
    seconds: float = 0.0
    cpu: float | None = None
    silent: float = 0.0
    late: bool = False


class LocalEngine(Engine):
    """An engine with workers on this machine, to be used as a context manager. Workers start with
    the first task and run until the end. `environment` holds variables that are added to the
    workers' environment. `helper` allows one extra process that helps to compile kernels."""

    here: ClassVar[bool] = True

    def __init__(
        self,
        workers: int,
        tick: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] = MappingProxyType({}),
        helper: bool = False,
    ) -> None:
        super().__init__(max(1, workers), tick)
        self._environment = environment
        self._helper = helper
        self.mirror: Mirror | None = None  # if OUT is a URL
        self.kernels = 0  # number compiled by workers
        self._ready: set[str] = set()  # steps whose kernels are compiled
        self._steps = 0  # number of steps in the run
        self._pool: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._looked = 0.0

    def _start(self) -> _Worker:
        began = None
        waiting = None if self._environment else idle_workers.take_waiting()
        if waiting is not None:
            process, began = waiting
        else:
            if not self._environment:
                began = idle_workers.inherited_state()
            process = idle_workers.spawn(self._environment)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        worker = _Worker(process, began=began)
        self._pool.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        return worker

    def _working(self) -> int:
        return sum(w.task is not None for w in self._pool)

    def _send_tasks(self, function: str, waiting: deque[Any], source: Iterator[Any]) -> None:
        working = [w for w in self._pool if not w.helps and not w.late]
        idle = [w for w in working if w.task is None]
        while waiting:
            if not idle and len(working) < self._count:
                idle.append(self._start())
                working.append(idle[0])
            if not idle:
                return
            worker = idle.pop()
            worker.task = waiting.popleft()
            worker.documents, worker.seconds = None, 0.0
            self._send(worker, Call(function, encode(worker.task).decode(), self.mirror))

    def _send(self, worker: _Worker, call: Call) -> None:
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # it died, which is seen when its output ends
            worker.process.stdin.write(call.to_json() + b"\n")
            worker.process.stdin.flush()

    def _answers(self) -> Iterator[tuple[Any, Answer | None]]:
        for worker, message in self._messages():
            task = worker.task
            if isinstance(message, (Compiling, Waiting, Ready)):
                self._about_kernels(worker, message)
            elif task is None:
                if message is None:
                    self._remove_dead(worker)
                elif worker.helps:
                    worker.process.kill()
            elif message is None:
                late = worker.seconds if worker.late else 0.0
                yield task, Death(self._remove_dead(worker), worker.documents, late)
            elif isinstance(message, Beat):
                if not worker.late:  # else keep the documents that took too long
                    worker.documents = message.first, message.last
                    worker.seconds, worker.cpu = message.seconds, message.cpu
            else:
                if isinstance(message, Done):  # a Failed ends the engine
                    worker.task = None
                yield task, message
        self._end_late()

    def _end_late(self) -> None:
        """Kill the workers that have been silent for longer than their limit. Each call counts at
        most LOOK_SECONDS of silence, because this process may have been busy or suspended."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, LOOK_SECONDS), now
        for worker in self._pool:
            if worker.task is None or not worker.seconds or worker.late:
                continue
            worker.silent += passed
            if worker.silent > worker.seconds and _cpu_since(worker) > worker.seconds:
                worker.late = True
                with suppress(ProcessLookupError):  # it has just ended
                    os.killpg(worker.process.pid, signal.SIGKILL)  # and its child processes

    def _about_kernels(self, worker: _Worker, message: Compiling | Waiting | Ready) -> None:
        if isinstance(message, Ready):
            self._ready.add(message.step)
            self._steps = message.of
        else:
            worker.silent = -KERNEL_SECONDS
            if isinstance(message, Waiting):
                return
            self.kernels += 1
            if self._helper:
                helpers = [w for w in self._pool if w.helps]
                if not helpers:  # it loads its libraries before its task is known
                    helpers = [self._start()]
                    helpers[0].helps = True
                if message.help:
                    self._helper = False
                    self._send(helpers[0], message.help)
        of = counted(self._steps, "step")
        steps = f", {len(self._ready)} of {of} ready" if self._ready else ""
        show_note(f"compiling kernels once, {self.kernels} so far{steps}, kept for later runs")

    def _messages(self) -> Iterator[tuple[_Worker, WorkerMessage | None]]:
        for key, _ in self._selector.select(timeout=0.5):
            worker: _Worker = key.data
            chunk = os.read(key.fd, 1 << 20)
            if not chunk:
                self._selector.unregister(key.fileobj)
                yield worker, None
                continue
            worker.buffer += chunk
            while (end := worker.buffer.find(b"\n")) >= 0:
                line = bytes(worker.buffer[:end])
                del worker.buffer[: end + 1]
                worker.silent = 0.0
                yield worker, read_line(line)

    def _remove_dead(self, worker: _Worker) -> int:
        status = worker.process.wait()
        self._pool.remove(worker)
        return status

    def close(self) -> None:
        """End all workers, or leave idle workers to the next engine (see idle_workers.keep)."""
        idle = [w for w in self._pool if w.task is None and not w.helps and w.began is not None]
        for worker in idle:
            if (
                not worker.buffer
                and not worker.late
                and idle_workers.put_back(worker.process, worker.began)
            ):
                self._pool.remove(worker)
        for worker in self._pool:
            worker.process.kill()
        for worker in self._pool:
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self._pool.clear()
        self._selector.close()
        self._selector = selectors.DefaultSelector()


def _cpu_since(worker: _Worker) -> float:
    if worker.cpu is None:
        return math.inf
    import psutil

    with suppress(psutil.Error):
        times = psutil.Process(worker.process.pid).cpu_times()
        return float(times.user + times.system) - worker.cpu
    return 0.0


def call_apart(function: str, task: object, environment: Mapping[str, str]) -> None:
    """Call "module:function" with a task in a separate process, with `environment` added to the
    variables of that process. That process ends with this one. If the call fails, raises RunFailed
    with the reason."""
    with LocalEngine(1, environment=environment) as engine:
        list(engine.map(function, [task], object))
