"""Work on pieces of text in threads, results in the order of the pieces.

Threads, because the kernels hold no lock while they encode: tables are shared, and nothing is
copied between processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result],
    items: Iterator[Item],
    size: Callable[[Item], int],
    workers: int,
    most: int,
) -> Iterator[Result]:
    """`map(function, items)` on so many threads.

    Items under way or waiting to be taken have `most` in sum of their `size`, but for one that is
    larger than that. An error comes where it would come without threads: behind the results before
    it.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    waiting: deque[tuple[int, Future[Result]]] = deque()
    held = 0
    failure: Exception | None = None
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                try:
                    item = next(items)
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
                waiting.append((size(item), pool.submit(function, item)))
                del item
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            for _, left in waiting:
                left.cancel()
    if failure is not None:
        raise failure
