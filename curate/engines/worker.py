"""The program of a worker process, started by the local engine (`llmcurate.base.start`). It reads
calls from stdin and writes its answers to stdout, one per line. It ends with its parent process."""

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
    Waiting,
    WorkerMessage,
    cpu_seconds,
    line_of,
)
from llmcurate.base.disk.store import LOCAL, Mirror, Store, using
from llmcurate.base.kernels import compile_time
from llmcurate.base.messages import decode, encode
from llmcurate.base.start import late_pandas

_reply_file = -1
_compiles = False  # True after this process has compiled a kernel
_help: Call | None = None
_beat: Callable[[], None] | None = None  # sends the last beat again
_sending = threading.Lock()  # a thread that compiles sends messages, too


def send(message: WorkerMessage) -> None:
    data = line_of(message)
    with _sending:
        while data:
            data = data[os.write(_reply_file, data) :]


def beat(first: int, last: int, seconds: float = 0.0, *, of_cpu: bool = False) -> None:
    """Tell the engine which documents this worker processes now. The engine ends the worker after
    `seconds` without another message. With `of_cpu`, only CPU time counts."""
    global _beat
    if _reply_file >= 0:
        _beat = functools.partial(beat, first, last, seconds, of_cpu=of_cpu)
        send(Beat(first, last, seconds, time.process_time() if of_cpu else None))


def beat_again() -> None:
    """Tell the engine that this worker still works on the documents of the last `beat`. A step that
    takes seconds per document calls this function, so that a large batch does not time out."""
    if _beat is not None:
        _beat()


def offer_help(function: str, task: object) -> None:
    """Offer `function(task)` to another process while this process compiles kernels."""
    global _help
    _help = Call(function, encode(task).decode())


def _compiling() -> None:
    global _compiles, _help
    _compiles = True
    if _reply_file >= 0:
        send(Compiling(_help))
        _help = None


def waiting_for_kernel() -> None:
    if _reply_file >= 0:
        send(Waiting())


def ready(step: str, steps: int) -> None:
    """Tell the engine that a step's kernels are compiled, if this process compiled any."""
    if _reply_file >= 0 and _compiles:
        send(Ready(step, steps))


def keep_memory() -> None:
    """Let this process keep freed memory for its next arrays. Otherwise glibc returns the memory of
    every batch to the system, and must get it again page by page."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, the most that glibc allows
        libc.mallopt(-1, 256 << 20)  # M_TRIM_THRESHOLD


def end_with(parent: int) -> None:
    """Make this process end when `parent` ends. On Linux the kernel does so, else a thread."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)

    def end_after() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=end_after, daemon=True).start()


def _run(call: Call) -> Done | Failed:
    from curate.steps.failures import error_with_place
    from llmcurate.base.errors import LlmcurateError, disk_error

    try:
        function = resolve_name(call.function)
        task: object = decode(_task_type(function), call.task)
        began = cpu_seconds()
        store = _store_of(call.store)
        with using(store):
            result = function(task)
        store.release()
        return Done(encode(result).decode(), cpu_seconds() - began)
    except MemoryError:
        return Failed("memory")
    except Exception as error:
        known = disk_error(error) or error
        if isinstance(known, LlmcurateError):
            return replace(Failed.of(known), traceback=traceback.format_exc())
        return Failed("bug", error_with_place(error), 1, traceback.format_exc())


@functools.cache
def _store_of(mirror: Mirror | None) -> Store:
    return Store(mirror) if mirror else LOCAL


@functools.cache
def _task_type(function: Callable[..., Any]) -> type:
    kinds = typing.get_type_hints(function)
    return next((kind for name, kind in kinds.items() if name != "return"), object)


def main() -> None:
    global _reply_file
    _reply_file = os.dup(1)
    compile_time.on_start = _compiling
    os.dup2(2, 1)  # prints of libraries must not mix with the answers
    sys.stdout = sys.stderr
    end_with(int(sys.argv[1]))
    keep_memory()
    gc.set_threshold(20_000, 20, 20)  # less often: modules and kernels are many objects, no garbage
    late_pandas()
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for function in sys.argv[2:]:  # load what the first task will need
        resolve_name(function)()
    for line in sys.stdin.buffer:
        send(_run(Call.from_json(line)))
