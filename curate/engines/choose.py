"""The choice of an engine by the name that a command gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from curate.engines.base import Engine
from curate.errors import UsageError

if TYPE_CHECKING:
    from curate.engines.exchange import Exchange

NAMES = ("local", "ray")


def check_engine(name: str, address: str | None, exchange: str | None = None) -> None:
    """UsageError where there is no such engine, or it has no address or exchange."""
    if name not in NAMES:
        raise UsageError(f"--engine {name}: there are {' and '.join(NAMES)}")
    if address and name != "ray":
        raise UsageError("--address is of a Ray cluster: give --engine ray as well")
    if exchange and name != "ray":
        raise UsageError("--exchange is between machines: give --engine ray as well")
    if exchange and ("://" not in exchange or exchange.startswith("memory:")):
        raise UsageError(
            f"--exchange {exchange}: give a URL that all machines reach, as s3://B/tmp"
        )


def open_engine(
    name: str,
    address: str | None,
    workers: tuple[int, int],
    tasks: int,
    tick: Callable[[], None],
    shared: Iterable[str] = (),
    exchange: Exchange | None = None,
) -> Engine:
    """An engine, to be used as a context manager.

    workers: as asked for (0: all there are), and what that is on this machine; tasks: that there
    will be at once; shared: files that all machines of a cluster must see; exchange: what they pass
    files through where they share none.
    """
    check_engine(name, address)
    if name == "ray":
        from curate.engines.ray import RayEngine

        paths = [str(Path(p).absolute()) for p in shared]
        engine = RayEngine(workers[0], tasks, address, tick, paths)
        if exchange is None:
            return engine
        from curate.engines.exchange_engine import ExchangeEngine

        return ExchangeEngine(engine, exchange)
    from curate.engines.local import LocalEngine

    return LocalEngine(min(workers[1], max(1, tasks)), tick, helper=workers[1] > tasks)
