"""Workers that wait for an engine: started ahead of it, or left by the one before.

The command line starts one before its own imports where documents are sure to be worked on, so that
both load their libraries at once. Where one process runs several recipes, `keep` lets engines leave
their idle workers to the next; these have their libraries and machine code loaded. Workers that
nobody takes end with this process.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from llmcurate.base.start import command

# Workers, each with the folder and environment that it was started in.
_waiting: list[tuple[subprocess.Popen[bytes], object]] = []
_kept = 0
_lock = threading.RLock()  # threads of one process may each have an engine


def keep(count: int) -> None:
    """How many idle workers engines leave behind from now on: 0, for a waiting worker keeps the
    memory it had."""
    global _kept
    _kept = count


def inherited_state() -> object:
    """What a worker takes over from this process when it is started."""
    # pytest says in one of its variables where it is.
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return Path.cwd(), variables


def spawn(environment: Mapping[str, str], *warm_up: str) -> subprocess.Popen[bytes]:
    """A worker process. environment: variables beside this process's own; warm_up: functions,
    as `module:name`, that it calls before its first task."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    return subprocess.Popen(
        command("curate.engines.worker", str(os.getpid()), *warm_up),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **threads, **environment},
        start_new_session=True,  # Ctrl-C reaches this process, which ends the workers
    )


def start() -> None:
    """Starts a worker that somebody will take."""
    if not _waiting:
        with suppress(OSError):  # then the engine tries again, and says what is wrong
            _waiting.append((spawn({}, "curate.run.worker.worker:warm_up"), inherited_state()))


def take() -> tuple[subprocess.Popen[bytes], object] | None:
    """A waiting worker that lives and was started as one would be now, and what `give` needs."""
    with _lock:
        now = inherited_state() if _waiting else None
        for index, (process, began) in enumerate(_waiting):
            if process.poll() is None and began == now:
                return _waiting.pop(index)
        return None


def give(process: subprocess.Popen[bytes], began: object) -> bool:
    """Leaves an idle worker to the next engine; whether it was taken. One too many ends the worker
    that has waited longest: what it was started in may never come again."""
    if not _kept or process.poll() is not None:
        return False
    with _lock:
        _waiting.append((process, began))
        stop()
    return True


def stop() -> None:
    """Ends those that have waited longest, but for as many as are kept."""
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
