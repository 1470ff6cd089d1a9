"""Workers of runs, forked from a process that has their libraries loaded: of the second that it
takes to start one nearly all is imports, and the tests start many hundreds.

What they are given is what a worker is started with: its folder, its environment, its pipes, and
this process as its parent. Where variables differ that count when modules are imported, and in
tests of the engines, workers are started as ever.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.engines import idle_workers

start_one = idle_workers.spawn
LIBRARIES = (
    "curate.run.worker.worker",
    "curate.filters.url_lists",
    "pyarrow.compute",
    "duckdb",
    "fsspec.implementations.local",
)
STEPS = ("c4", "gopher_quality", "document_length", "dedup_exact", "dedup_minhash")
PR_SET_CHILD_SUBREAPER = 36


class Forked(subprocess.Popen):
    """A child of this process that another one has forked."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid, self.args, self.returncode = pid, ["curate.engines.worker"], None
        self.stdin, self.stdout, self.stderr = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), None
        self._child_created, self._waitpid_lock = True, threading.Lock()


def spawn(environment: Mapping[str, str], *warm_up: str) -> subprocess.Popen[bytes]:
    """`idle_workers.spawn`."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    home = str(Path(idle_workers.__file__).resolve().parents[2])
    path = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    variables = {**os.environ, **threads, **environment}
    variables["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    if sys.platform != "linux" or _imported_by(variables) != _forker().imported_by:
        return start_one(environment, *warm_up)
    task = {
        "cwd": str(Path.cwd()),
        "variables": variables,
        "arguments": [str(os.getpid()), *warm_up],
    }
    return _forker().fork(task)


def _imported_by(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that count when a process begins, or when modules are imported."""
    kinds = ("NUMBA_", "PYTHON", "LD_", "GLIBC_", "MALLOC_", "LLMCURATE_CACHE", "XDG_CACHE")
    kinds += ("HOME", "ARROW_")
    return {k: v for k, v in variables.items() if k.startswith(kinds) and k != "PYTHONPATH"}


@functools.cache
def _forker() -> _Forker:
    return _Forker()


class _Forker:
    """The process that forks, which ends with this one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
        variables = {**os.environ, **threads}
        self.imported_by = _imported_by(variables)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=Path(__file__).resolve().parents[2],
            env=variables,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    def fork(self, task: dict[str, Any]) -> Forked:
        tasks, stdin = os.pipe()
        stdout, answers = os.pipe()
        data = json.dumps(task).encode()
        libc = ctypes.CDLL(None)
        # The worker's parent ends at once, and so its parent is this process.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            length = len(data).to_bytes(8, "big")
            socket.send_fds(self._socket, [length], [tasks, answers, 2])
            self._socket.sendall(data)
            pid = int.from_bytes(self._socket.recv(8), "big")
        finally:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
            os.close(tasks)
            os.close(answers)
        assert pid, "the process that forks workers has ended"
        return Forked(pid, stdin, stdout)


def serve(requests: socket.socket) -> None:
    """Forks a worker for each request; returns in each, as it does where there are no more."""
    for name in LIBRARIES:
        importlib.import_module(name)
    importlib.import_module("curate.run.worker.worker").warm_up()
    _load_kernels()
    while True:
        length, streams, _, _ = socket.recv_fds(requests, 8, 3)
        if not length:
            os._exit(0)
        task = json.loads(_read(requests, int.from_bytes(length, "big")))
        ready, worker_number = os.pipe()
        middle = os.fork()
        if middle == 0:
            middle = os.getpid()
            if worker := os.fork():
                os.write(worker_number, worker.to_bytes(8, "big"))
                os._exit(0)
            while os.getppid() == middle:
                time.sleep(0.0005)
            requests.detach()
            return _become(task, streams)
        os.waitpid(middle, 0)
        requests.sendall(os.read(ready, 8))
        for file in (ready, worker_number, *streams):
            os.close(file)


def _load_kernels() -> None:
    """Loads the modules and the machine code of steps that many tests name."""
    from curate.run.worker import rehearsal
    from curate.steps.recipe import parse
    from llmcurate.base.disk import database
    from llmcurate.base.kernels import compile_time

    for step in parse(json.dumps({"steps": STEPS}), "steps").steps:
        rehearsal.rehearse(step, Path())
    while database._idle:  # their threads would not be in what is forked
        database._idle.pop().close()
    compile_time.seconds = 0.0  # of this process, not of its forks
    gc.collect()
    gc.freeze()  # else each fork's first collection copies all memory


def _read(requests: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        parts += requests.recv(count - len(parts))
    return parts


def _become(task: dict[str, Any], streams: list[int]) -> None:
    """As if this process had been started so."""
    os.setsid()
    for number, file in enumerate(streams):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.chdir(task["cwd"])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(task["variables"])
    paths = task["variables"]["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [task["cwd"], *paths, *(p for p in sys.path[1:] if p not in before)]
    sys.path_importer_cache.clear()
    time.tzset()
    sys.argv[1:] = task["arguments"]


if __name__ == "__main__":
    from curate.engines import worker
    from llmcurate.base.start import late_pandas

    late_pandas()
    serve(socket.socket(fileno=int(sys.argv[1])))
    worker.main()
