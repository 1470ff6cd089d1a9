"""Work that waits for storage, in a few threads, its results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 16  # a store answers in tens of milliseconds, whatever the processor does meanwhile

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """work(item) of each item, in their order; no more than 2 * AT_ONCE results wait to be taken.
    What one raises is raised in its place, and those behind it are not begun."""
    if len(items) < 2:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(min(AT_ONCE, len(items)), thread_name_prefix="ahead") as threads:
        try:
            for item in items:
                if len(waiting) == 2 * AT_ONCE:
                    yield waiting.popleft().result()
                waiting.append(threads.submit(work, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
