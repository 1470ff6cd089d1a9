"""`llmcurate scaling`: sweeps over sizes and tokens, fits of scaling laws, plans for a budget."""

# ruff: noqa: UP045 (Typer reads Optional on every Python that is supported)
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli.options import Json, Quiet, Sets, group
from curate.cli.settings import command

scaling_app = group("scaling", "Fit scaling laws, and plan a model for a budget.")


@command(scaling_app, "ScalingRun", "run")
def scaling_run(
    out: Annotated[Path, typer.Option("-o", "--out", metavar="PATH", help="Folder to write.")],
    shards: Annotated[
        Optional[Path],
        typer.Argument(metavar="SHARDS", help="Token shards. In a workspace the newest."),
    ] = None,
    sets: Sets = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train a sweep over sizes and budgets.

    With --flops all sizes of a budget cost as much (IsoFLOP); with --tokens they read as much. Each
    run has a learning rate that falls to its own end. Stopped, the same command goes on.

    \b
    Example:
    llmcurate scaling run shards/ -o sweep --flops 2e11,6e11,2e12
    llmcurate scaling run shards/ -o sweep --tokens 1e5,1e6 --sizes 64x2,128x3
    """
    from curate.cli.model_settings import ScalingRun
    from curate.cli.options import workspace
    from curate.cli.training import needs_training
    from curate.inspect.scaling import run_sweep

    chosen = ScalingRun.of(settings)
    folder = shards or workspace("SHARDS").need("shards", "llmcurate tokenizer encode")
    with needs_training():
        run_sweep(folder, out, chosen, sets or [], as_json, quiet)
