"""Work that waits for storage, or for compiled code, in a few threads, its results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 16  # a store answers in tens of milliseconds, whatever the processor does meanwhile

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result], items: Sequence[Item], at_once: int | None = None
) -> Iterator[Result]:
    """work(item) of each item, in their order; no more than 2 * at_once (AT_ONCE) results wait to
    be taken. What one raises is raised in its place, and those behind it are not begun."""
    at_once = min(at_once or AT_ONCE, len(items))
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
