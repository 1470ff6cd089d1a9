"""The choice of an engine by the name that a command gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from curate.engines.base import Engine, Jobs
from llmcurate.base.errors import UsageError


def check_engine(name: str, address: str | None, slurm: Sequence[str] = ()) -> None:
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


def open_engine(
    name: str,
    address: str | None,
    workers: tuple[int, int],
    tasks: int,
    tick: Callable[[], None],
    jobs: Jobs,
    shared: Iterable[str] = (),
) -> Engine:
    """An engine, to be used as a context manager.

    workers: as asked for (0: all there are), and what that is on this machine; tasks: that there
    will be at once; jobs: how a cluster is asked for workers, where there is one; shared: files
    that all its machines must see, beside the folder of `jobs`.
    """
    check_engine(name, address)
    if name == "slurm":
        from curate.engines.slurm import SlurmEngine

        return SlurmEngine(workers[0], tasks, jobs, address, tick, shared)
    if name == "ray":
        from curate.engines.ray import RayEngine

        return RayEngine(workers[0], tasks, address, tick, jobs, shared)
    from curate.engines.local import LocalEngine

    return LocalEngine(min(workers[1], max(1, tasks)), tick, helper=workers[1] > tasks)
