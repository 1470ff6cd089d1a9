"""A process that dies in the middle of a resolve's tasks."""

from __future__ import annotations

from collections.abc import Iterator

from curate.corpus.sketches import R, T, run_here


class Killed(BaseException):
    pass


class Dying:
    """Runs tasks, and dies after the first one of each function when that is asked for first.

    asked: the functions and how many tasks each was given, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def __call__(self, function: str, tasks: list[T], result: type[R]) -> Iterator[tuple[T, R]]:
        name = function.partition(":")[2]
        again = name in dict(self.asked)
        if tasks:
            self.asked.append((name, len(tasks)))
        for number, pair in enumerate(run_here(function, tasks, result)):
            if number == 1 and not again:
                raise Killed
            yield pair

    @property
    def names(self) -> list[str]:
        """The functions that were asked for."""
        return [name for name, _ in self.asked]
