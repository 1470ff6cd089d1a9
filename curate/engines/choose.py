"""The engine that a command names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from curate.engines.base import Engine
from curate.errors import UsageError

NAMES = ("local", "ray")


def check_engine(name: str, address: str | None) -> None:
    """UsageError where there is no such engine, or it has no address."""
    if name not in NAMES:
        raise UsageError(f"--engine {name}: there are {' and '.join(NAMES)}")
    if address and name != "ray":
        raise UsageError("--address is of a Ray cluster: give --engine ray as well")


def open_engine(
    name: str,
    address: str | None,
    workers: tuple[int, int],
    tasks: int,
    tick: Callable[[], None],
    shared: Iterable[str] = (),
) -> Engine:
    """An engine, to be used as a context manager.

    workers: as asked for (0: all there are), and what that is on this machine; tasks: that there
    will be at once; shared: files that all machines of a cluster must see.
    """
    check_engine(name, address)
    if name == "ray":
        from curate.engines.ray import RayEngine

        paths = [str(Path(p).absolute()) for p in shared]
        return RayEngine(workers[0], tasks, address, tick, paths)
    from curate.engines.local import LocalEngine

    return LocalEngine(min(workers[1], max(1, tasks)), tick)
