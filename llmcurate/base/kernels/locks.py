"""One process at a time compiles a kernel; others that need it wait, or do something else first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from numba.core.compiler_lock import global_compiler_lock

from llmcurate.base.kernels import compile_time

try:
    import fcntl
except ImportError:  # Windows, where two processes may compile one kernel
    fcntl = None  # type: ignore[assignment]


class Busy(Exception):
    """Another process compiles the kernel."""


def refuse() -> None:
    """For compile_time.on_busy: Busy, so that the caller goes on with what needs other kernels."""
    raise Busy


PATIENCE = 120.0  # seconds; no kernel takes a tenth of it
_held = 0  # kernels that this process compiles now, each within another


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Within, no other process compiles the kernel whose machine code goes to `path`, which may be
    there by then. Kernels call each other in no circle, so no two processes wait for each other."""
    global _held
    # Taken first in all threads: one with a kernel's lock could else wait for one that needs it.
    with global_compiler_lock, ExitStack() as stack:
        lock = path.with_name(f"{path.name}.lock")
        with suppress(OSError):  # a folder of somebody else, a file system without locks
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(lock.open("w"))
            if not _taken(file):
                if not _held:
                    compile_time.on_busy()
                _wait(file)
            stack.callback(lock.unlink, missing_ok=True)
        _held += 1
        try:
            yield
        finally:
            _held -= 1


def _taken(file: IO[str]) -> bool:
    """Whether this process has the lock now."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _wait(file: IO[str]) -> None:
    """Waits for the lock, or PATIENCE seconds: who has it may have been stopped."""
    until = time.monotonic() + PATIENCE
    while not _taken(file) and time.monotonic() < until:
        time.sleep(0.02)
