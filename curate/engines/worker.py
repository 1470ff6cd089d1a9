"""A worker process: reads calls from stdin, a line each, and answers by lines on stdout.

Started by the local engine (`llmcurate.base.start`). It ends when its parent does.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import signal
import sys
import threading
import time
import traceback
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

from curate.engines.base import (
    Beat,
    Call,
    Compiling,
    Done,
    Failed,
    Ready,
    Said,
    Waiting,
    cpu_seconds,
    line_of,
)
from llmcurate.base.kernels import compile_time
from llmcurate.base.messages import decode, encode
from llmcurate.base.start import late_pandas

_reply_file = -1
_compiles = False  # whether this process has compiled a kernel
_help: Call | None = None
_sending = threading.Lock()  # a thread that compiles speaks, too


def send(message: Said) -> None:
    """Writes one message to the engine."""
    data = line_of(message)
    with _sending:
        while data:
            data = data[os.write(_reply_file, data) :]


def beat(first: int, last: int, seconds: float = 0.0, *, of_cpu: bool = False) -> None:
    """Tells the engine which documents are being worked on, as of `Beat`. of_cpu: whether the
    seconds are of this process's CPU time."""
    if _reply_file >= 0:
        send(Beat(first, last, seconds, time.process_time() if of_cpu else None))


def offer_help(function: str, task: object) -> None:
    """Says what another process can do where this one has kernels to compile: a task, whose result
    nobody waits for."""
    global _help
    _help = Call(function, encode(task).decode())


def _compiling() -> None:
    """Tells the engine of one kernel more."""
    global _compiles, _help
    _compiles = True
    if _reply_file >= 0:
        send(Compiling(_help))
        _help = None


def waiting_for_kernel() -> None:
    """Tells the engine that this process waits for a kernel that another one compiles."""
    if _reply_file >= 0:
        send(Waiting())


def ready(step: str, steps: int) -> None:
    """Tells the engine that the kernels of a step are there, of so many steps; nothing where this
    process has compiled none."""
    if _reply_file >= 0 and _compiles:
        send(Ready(step, steps))


def keep_memory() -> None:
    """Lets this process keep freed memory for its next arrays. Else glibc gives the megabytes of
    every batch back, only to hand them out again page by page."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, the most that glibc allows
        libc.mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD


def end_with(parent: int) -> None:
    """Ends this process when its parent does; Linux sees to it, elsewhere a thread looks."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _run(call: Call) -> Done | Failed:
    from curate.steps.failures import described
    from llmcurate.base.errors import LlmcurateError, disk_error

    try:
        function = resolve_name(call.function)
        task: object = decode(_task_type(function), call.task)
        began = cpu_seconds()
        result = function(task)
        return Done(encode(result).decode(), cpu_seconds() - began)
    except MemoryError:
        return Failed("memory")
    except Exception as error:
        known = disk_error(error) or error
        if isinstance(known, LlmcurateError):
            return replace(Failed.of(known), traceback=traceback.format_exc())
        return Failed("bug", described(error), 1, traceback.format_exc())


@functools.cache
def _task_type(function: Callable[..., Any]) -> type:
    """Return the type of a function's one parameter."""
    kinds = typing.get_type_hints(function)
    return next((kind for name, kind in kinds.items() if name != "return"), object)


def main() -> None:
    """Serves tasks until stdin ends."""
    global _reply_file
    _reply_file = os.dup(1)
    compile_time.on_start = _compiling
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    sys.stdout = sys.stderr
    end_with(int(sys.argv[1]))
    keep_memory()
    gc.set_threshold(20_000, 20, 20)  # modules and kernels are many objects, and none is garbage
    late_pandas()
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for function in sys.argv[2:]:  # load what the first task will need
        resolve_name(function)()
    for line in sys.stdin.buffer:
        send(_run(Call.from_json(line)))
