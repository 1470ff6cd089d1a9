"""Workers that wait for an engine: started before the engine, or left by an earlier engine. If
documents will be processed, the command line starts such a worker before its own imports, so that
both load their libraries at the same time. A process that runs several recipes can call `keep`, so
that idle workers stay for the next engine, with their libraries and machine code loaded. Unused
workers end with this process."""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from llmcurate.base.start import command

# Workers, each with the folder and environment it was started in.
_waiting: list[tuple[subprocess.Popen[bytes], object]] = []
_kept = 0
_lock = threading.RLock()  # threads of one process may each have an engine


def keep(count: int) -> None:
    """Set how many idle workers an engine leaves for the next one. The default is 0, because a
    waiting worker keeps its memory."""
    global _kept
    _kept = count


def inherited_state() -> object:
    # pytest changes its variable with every test.
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return Path.cwd(), variables


def spawn(environment: Mapping[str, str], *warm_up: str) -> subprocess.Popen[bytes]:
    """Start a worker process. It gets the variables of this process and those in `environment`.
    Before its first task, the worker calls the functions `warm_up`, named `module:name`."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    return subprocess.Popen(
        command("curate.engines.worker", str(os.getpid()), *warm_up),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **threads, **environment},
        start_new_session=True,  # Ctrl-C reaches this process, which ends the workers
    )


def start() -> None:
    if not _waiting:
        with suppress(OSError):  # the engine tries again and reports the error
            _waiting.append((spawn({}, "curate.run.worker.worker:warm_up"), inherited_state()))


def take_waiting() -> tuple[subprocess.Popen[bytes], object] | None:
    """Take a waiting worker that was started in this process's present folder and environment.
    Return (worker, (folder, environment)), or None if there is no such worker."""
    with _lock:
        now = inherited_state() if _waiting else None
        for index, (process, state) in enumerate(_waiting):
            if process.poll() is None and state == now:
                return _waiting.pop(index)
        return None


def put_back(process: subprocess.Popen[bytes], state: object) -> bool:
    """Keep an idle worker for the next engine, and return True if it was kept. `state` is the
    working folder and environment that it inherited. If there are too many idle workers, the oldest
    are ended."""
    if not _kept or process.poll() is not None:
        return False
    with _lock:
        _waiting.append((process, state))
        stop()
    return True


def stop() -> None:
    """End the oldest waiting workers until only the number set by `keep` is left."""
    with _lock:
        while len(_waiting) > _kept:
            process, _ = _waiting.pop(0)
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


@atexit.register
def _end() -> None:
    keep(0)
    stop()
