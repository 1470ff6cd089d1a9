"""A worker that is a copy of this process, for work so little that loading libraries is most of it.

It has what this process has loaded, and dies alone as any worker does. Linux only, and only of a
process without threads of its own: a copy has the one that copied alone, so a lock that another
holds stays locked in it. The libraries that were loaded see to theirs (OpenBLAS, Arrow, jemalloc).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from typing import BinaryIO, NoReturn

ONE_THREAD = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")


class Forked:
    """A child as far as engines ask of a subprocess.Popen."""

    def __init__(self, pid: int, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._status: int | None = None

    def _look(self, options: int) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else has waited for it
                pid, status = self.pid, 0
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def poll(self) -> int | None:
        """Its exit status, minus a signal's number, or None while it lives."""
        return self._look(os.WNOHANG)

    def wait(self) -> int:
        """Its exit status, when it has one."""
        return self._look(0) or 0

    def kill(self) -> None:
        """Ends it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def possible() -> bool:
    """Whether a copy of this process can be a worker."""
    return sys.platform == "linux" and threading.active_count() == 1


def fork() -> Forked:
    """A worker that waits for its first task."""
    import curate.stage
    import curate.text.warm  # noqa: F401  (both would load it)

    theirs, ours = os.pipe()
    answers, telling = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that libraries have
        pid = os.fork()
    if pid == 0:
        os.close(ours)
        os.close(answers)
        _work(parent, theirs, telling)
    os.close(theirs)
    os.close(telling)
    return Forked(pid, os.fdopen(ours, "wb"), os.fdopen(answers, "rb", buffering=0))


def _work(parent: int, tasks: int, answers: int) -> NoReturn:
    """Serves tasks in the child; it never gets back to what this process was doing."""
    from curate.engines import worker

    code = 1
    try:
        os.setsid()  # Ctrl-C reaches the parent, which ends the workers
        gc.freeze()
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        with os.fdopen(tasks, "rb") as lines:
            worker.serve(parent, lines, answers)
        code = 0
    finally:
        os._exit(code)
