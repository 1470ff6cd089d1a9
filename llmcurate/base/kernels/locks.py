"""Locks: only one process at a time compiles a kernel. Others wait or compile other kernels."""

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
    """Another process is compiling the kernel."""


def refuse() -> None:
    """Raise Busy, instead of waiting for another process that compiles the same kernel. Set as the
    callback `compile_time.on_busy`, it lets this process compile other kernels first."""
    raise Busy


WAIT_SECONDS = 120.0  # over ten times the compile time of any kernel
_held = 0  # number of nested compilations in this process


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Within the block, no other process compiles the kernel whose code is written to `path`. If
    another process compiled the kernel while this one waited, `path` exists when the block begins.
    Kernels never call each other in a circle, so two processes never wait for each other."""
    global _held
    # Each thread acquires numba's lock first. Otherwise a thread with a kernel's lock could wait
    # for a thread that needs the kernel's lock.
    with global_compiler_lock, ExitStack() as stack:
        lock = path.with_name(f"{path.name}.lock")
        with suppress(OSError):  # another user's folder, a file system without locks
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(lock.open("w"))
            if not _try_lock(file):
                if not _held:
                    compile_time.on_busy()
                _wait(file)
            stack.callback(lock.unlink, missing_ok=True)
        _held += 1
        try:
            yield
        finally:
            _held -= 1


def _try_lock(file: IO[str]) -> bool:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _wait(file: IO[str]) -> None:
    """Wait for a file's lock, at most WAIT_SECONDS: the process that has it may be suspended."""
    until = time.monotonic() + WAIT_SECONDS
    while not _try_lock(file) and time.monotonic() < until:
        time.sleep(0.02)
