"""`llmcurate scaling`: sweeps over sizes and tokens, fits of scaling laws, plans for a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from curate.cli.options import Json, NewFolder, Quiet, Sets, group, output
from curate.cli.settings import command
from curate.products.needs import needs_training

scaling_app = group("scaling", "Fit scaling laws, and plan a model for a budget.")


@command(scaling_app, "ScalingRun", "run")
def scaling_run(
    out: NewFolder,
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
    run has a learning rate that falls to its own end. With --unique-tokens budgets are also run on
    a part of the corpus, which is read again and again. Stopped, the same command goes on.

    \b
    Example:
    llmcurate scaling run shards/ -o sweep --flops 2e11,6e11,2e12
    llmcurate scaling run shards/ -o sweep --tokens 1e5,1e6 --sizes 64x2,128x3
    llmcurate scaling run shards/ -o sweep --tokens 1e5,3e5,1e6 --unique-tokens 2e4,1e5
    """
    from curate.api.model_settings import ScalingRun
    from curate.cli.options import newest
    from curate.lab.scaling import run_sweep

    chosen = ScalingRun.of(**settings)
    folder = newest("shards", shards, "SHARDS")
    with needs_training():
        run_sweep(folder, out, chosen, sets or [], as_json, quiet)


@command(scaling_app, "ScalingFit", "fit")
def scaling_fit(
    points: Annotated[
        Path,
        typer.Argument(
            metavar="POINTS",
            help="Folder of a sweep, or a CSV or JSON file of points: parameters, tokens, loss.",
        ),
    ],
    out: Annotated[
        Optional[Path],
        output("Folder for scaling.json and a page. The default is the sweep's."),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Fit scaling laws to losses.

    Hoffmann et al.'s three approaches, Kaplan's law, and what repeated text is worth, with
    intervals of 95 %. Points may also have flops, unique_tokens and non_embedding.

    \b
    Example:
    llmcurate scaling fit sweep
    llmcurate scaling fit points.csv -o law
    """
    from curate.api.model_settings import ScalingFit
    from curate.lab.scaling import fit_points

    chosen = ScalingFit.of(**settings)
    with needs_training():
        fit_points(points, out, chosen, as_json)


@command(scaling_app, "ScalingPlan", "plan")
def scaling_plan(as_json: Json = False, **settings: Any) -> None:
    """Plan parameters, tokens and hours for a budget.

    By Chinchilla's rule, by published laws, and by a fit of your own. With --unique-tokens text is
    repeated where it is too little, and counts less each time (Muennighoff et al. 2023).

    \b
    Example:
    llmcurate scaling plan --flops 1e20
    llmcurate scaling plan --flops 1e20 --unique-tokens 2e9 --fit sweep --gpu H100
    """
    from curate.api.model_settings import ScalingPlan
    from curate.lab.scaling import plan_budget

    chosen = ScalingPlan.of(**settings)
    with needs_training():
        plan_budget(chosen, as_json)
