"""This process: its peak memory, and a few threads for work that waits for storage."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar


def peak_bytes() -> int:
    """The most memory that this process has held, in bytes; on Linux of this program alone, where
    getrusage would count what started it too."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


AT_ONCE = 16  # a store answers in tens of milliseconds, whatever the processor does meanwhile

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Sequence[Item], at_once: int = AT_ONCE
) -> Iterator[Result]:
    """work(item) of each item, in their order; no more than 2 * at_once results wait to
    be taken. What one raises is raised in its place, and those behind it are not begun."""
    at_once = min(at_once, len(items))
    if at_once < 2:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(at_once, thread_name_prefix="ahead") as threads:
        try:
            for item in items:
                if len(waiting) == 2 * at_once:
                    yield waiting.popleft().result()
                waiting.append(threads.submit(work, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
