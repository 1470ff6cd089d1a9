"""The next step's data, made by a thread while this step computes.

What a step is given is a function of its number, so being early changes nothing: a step that was
not foreseen, as after a rollback, is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Data = TypeVar("Data")


class Ahead(Generic[Data]):
    """``make(step)``, one step ahead of who asks, up to step ``last`` - 1.

    An error of ``make`` is raised where its step is asked for. Used by one thread; ``close`` ends
    the one behind it.
    """

    def __init__(self, make: Callable[[int], Data], last: int) -> None:
        self._make, self._last = make, last
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._early: tuple[int, Future[Data]] | None = None

    def __call__(self, step: int) -> Data:
        early, self._early = self._early, None
        if early is not None and early[0] == step:
            value = early[1].result()
        else:
            value = self._make(step)
        if step + 1 < self._last:
            self._early = (step + 1, self._pool.submit(self._make, step + 1))
        return value

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
