"""`llmcurate warmup`: kernels compiled ahead."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from curate.cli import completion
from curate.cli.options import Json, Quiet, Workers, app
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import echo, echo_json


@app.command()
def warmup(
    recipes: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="RECIPE...",
            help="Recipes that will be run. The default is all shipped ones, and every step.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile kernels ahead of the first run.

    A run compiles those that it misses, so this saves only the wait. Where machines share a folder
    of kernels (NUMBA_CACHE_DIR), one of each kind of processor does it for all.

    Examples:

    llmcurate warmup
    llmcurate warmup fineweb mine.yaml
    """

    from curate.run.records import Options
    from curate.run.warmup import warm_up
    from llmcurate.base.kernels.folder import kernels_folder

    done = warm_up(recipes or [], Options(workers=workers).count(), quiet)
    if as_json:
        echo_json({**vars(done), "folder": str(kernels_folder())})
        return
    kernels = counted(done.compiled, "kernel")
    steps = counted(done.steps, "step")
    echo(f"{steps} rehearsed, {kernels} compiled, kept in {kernels_folder()}")
    if not recipes and done.missing:
        lacking = ", ".join(sorted(done.missing))
        echo(f"compiled when they first have their models and lists (--json says which): {lacking}")
        return
    for step, why in done.missing.items():
        echo(f"not compiled: {step}: {why}")
