"""Workers that wait for an engine: started ahead of it, or left by the one before.

The command line starts one before its own imports where documents are sure to be worked on, so that
both load their libraries at once. Where one process runs several recipes, `keep` lets engines leave
their idle workers to the next; these have their libraries and machine code loaded. Workers that
nobody takes end with this process. Where there is little to do, `copy` makes one of this process.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from curate.engines.forked import ONE_THREAD, Forked, possible
from curate.engines.forked import fork as forked

Process = subprocess.Popen[bytes] | Forked
# Workers, each with the folder and environment that it was started in.
_waiting: list[tuple[Process, object]] = []
_kept = 0
_alone = False


def alone() -> None:
    """Says that this process does nothing but its command, so that `copy` may copy it."""
    global _alone
    _alone = True


def keep(count: int) -> None:
    """How many idle workers engines leave behind from now on: 0, for a waiting worker keeps the
    memory it had."""
    global _kept
    _kept = count


def here() -> object:
    """What a worker takes over from this process when it is started."""
    # pytest says in one of its variables where it is.
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return Path.cwd(), variables


def spawn(environment: Mapping[str, str], *modules: str) -> subprocess.Popen[bytes]:
    """A worker process. environment: variables beside this process's own; modules: what it loads
    before its first task."""
    home = str(Path(__file__).resolve().parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    path = os.pathsep.join(dict.fromkeys(paths))
    one = dict.fromkeys(ONE_THREAD, "1")
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
            _waiting.append((spawn({}, "curate.stage", "curate.text.warm"), here()))


def copy() -> None:
    """Makes a worker of this process that somebody will take, where that can be done."""
    if _alone and not _waiting and possible():
        with suppress(OSError):
            _waiting.append((forked(), here()))


def take() -> tuple[Process, object] | None:
    """A waiting worker that lives and was started as one would be now, and what `give` needs."""
    now = here() if _waiting else None
    for place, (process, began) in enumerate(_waiting):
        if process.poll() is None and began == now:
            return _waiting.pop(place)
    return None


def give(process: Process, began: object) -> bool:
    """Leaves an idle worker to the next engine; whether it was taken."""
    if len(_waiting) >= _kept or process.poll() is not None:
        return False
    _waiting.append((process, began))
    return True


def stop() -> None:
    """Ends those that nobody took, but for as many as are kept."""
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
