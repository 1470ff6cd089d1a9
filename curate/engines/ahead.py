"""A worker started before the command's own imports, so that both load their libraries at once.

The command line starts one where documents are sure to be worked on; the local engine takes it as
its first worker. One that nobody takes ends with this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_waiting: list[subprocess.Popen[bytes]] = []


def spawn(environment: Mapping[str, str], *modules: str) -> subprocess.Popen[bytes]:
    """A worker process. environment: variables beside this process's own; modules: what it loads
    before its first task."""
    home = str(Path(__file__).resolve().parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    path = os.pathsep.join(dict.fromkeys(paths))
    one = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "curate.engines.worker", str(os.getpid()), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **one, **environment, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C reaches this process, which ends the workers
    )


def start() -> None:
    """Starts a worker that somebody will take."""
    if not _waiting:
        with suppress(OSError):  # then the engine tries again, and says what is wrong
            _waiting.append(spawn({}, "curate.stage", "curate.text.warm"))


def take() -> subprocess.Popen[bytes] | None:
    """The worker that was started ahead, if it still lives."""
    process = _waiting.pop() if _waiting else None
    return process if process is not None and process.poll() is None else None


def stop() -> None:
    """Ends a worker that nobody took."""
    process = take()
    if process is not None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
