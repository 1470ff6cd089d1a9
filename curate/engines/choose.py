"""The choice of an engine by the name that a command gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from curate.engines.base import Engine, Jobs
from llmcurate.base.errors import UsageError

if TYPE_CHECKING:
    from curate.engines.exchange import Exchange


def check_engine(
    name: str, address: str | None, exchange: str | None = None, slurm: Sequence[str] = ()
) -> None:
    """UsageError where there is no such engine, or it does not take these options."""
    if name not in ("local", "ray", "slurm"):
        raise UsageError(f"--engine {name}: there are local, ray and slurm")
    if address and name == "local":
        raise UsageError("--address is of a cluster: give --engine ray or slurm as well")
    if slurm and name != "slurm":
        raise UsageError("--slurm has options of sbatch: give --engine slurm as well")
    if slurm:
        from curate.engines.slurm import sbatch_options

        sbatch_options(slurm)
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
    jobs: Jobs | None = None,
) -> Engine:
    """An engine, to be used as a context manager.

    workers: as asked for (0: all there are), and what that is on this machine; tasks: that there
    will be at once; shared: files that all machines of a cluster must see; exchange: what they pass
    files through where they share none; jobs: how Slurm is asked for them, where it is.
    """
    check_engine(name, address)
    paths = [str(Path(p).absolute()) for p in shared]
    if name == "slurm":
        from curate.engines.slurm import SlurmEngine

        assert jobs is not None
        return SlurmEngine(workers[0], tasks, jobs, address, tick, paths)
    if name == "ray":
        from curate.engines.ray import RayEngine

        quiet = jobs is not None and jobs.quiet
        engine = RayEngine(workers[0], tasks, address, tick, paths, quiet)
        if exchange is None:
            return engine
        from curate.engines.exchange_engine import ExchangeEngine

        return ExchangeEngine(engine, exchange)
    from curate.engines.local import LocalEngine

    return LocalEngine(min(workers[1], max(1, tasks)), tick, helper=workers[1] > tasks)
