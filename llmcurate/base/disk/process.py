"""This process: its peak memory, its machine, and threads for work that waits for storage."""

from __future__ import annotations

import os
import platform
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes. On Linux, the memory of the parent program,
    which getrusage would count, is left out."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class Host:
    """The hardware and system of a machine, without anything that identifies the machine."""

    system: str  # such as Linux
    machine: str  # architecture, such as x86_64
    processor: str  # model name, or "" if it is unknown
    cores: int  # number of cores that this process may use
    memory: int  # in bytes, or 0 if unknown


def host() -> Host:
    """Return the hardware and system of this machine."""
    system = platform.uname()
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        processor = info.partition("model name")[2].partition(":")[2].partition("\n")[0].strip()
    except OSError:
        processor = ""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 0
    return Host(system.system, system.machine, processor, cores(), memory)


def cores() -> int:  # that this process may use
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# A store takes tens of milliseconds to answer. For 10^5 archives at 0.1 s per request, 16 threads
# wait for 53 minutes, 128 for 7 (benchmarks/bench_planning.py).
AT_ONCE = 128


class Threads(ThreadPoolExecutor):
    """A thread pool whose threads share the context of the thread that submits the work. So they
    also call the listeners that this thread has set with files.listening."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    at_once: int = AT_ONCE,
    size: Callable[[Item], int] = lambda item: 1,
    most: int | None = None,
) -> Iterator[Result]:
    """Yield work(item) for each item, in the order of the items, by `at_once` threads. The sizes of
    the items in work or waiting add up to at most `most`; a larger item is processed alone. By
    default, at most 2 * at_once results wait. An error of work(item), or of reading `items`, is
    raised after the results of earlier items, and later items that have not begun are cancelled."""
    if isinstance(items, Sized):
        at_once = min(at_once, len(items))
    if at_once < 2:
        yield from map(work, items)
        return
    most = 2 * at_once if most is None else most
    waiting: deque[tuple[int, Future[Result]]] = deque()
    held, failure, source = 0, None, iter(items)
    with Threads(at_once, thread_name_prefix="ahead") as threads:
        try:
            while True:
                try:
                    item = next(source)
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
                    break
                while waiting and held + size(item) > most:
                    weight, first = waiting.popleft()
                    yield first.result()
                    held -= weight
                held += size(item)
                waiting.append((size(item), threads.submit(work, item)))
                del item
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    if failure is not None:
        raise failure
