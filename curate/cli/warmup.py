"""`llmcurate warmup`: kernels compiled ahead."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from curate.cli import completion
from curate.cli.options import Json, Quiet, Workers, app
from llmcurate.base.disk.units import counted
from llmcurate.base.terminal import Progress, echo, echo_json

if TYPE_CHECKING:
    from curate.steps.contracts import Settings


@app.command(rich_help_panel="Operate")
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


@dataclass(frozen=True)
class Warmed:
    """The numbers of steps that were rehearsed and of kernels that were compiled; missing: why a
    step was not, by its name."""

    steps: int
    missing: dict[str, str]
    compiled: int


def warm_up(recipes: list[str], workers: int, quiet: bool) -> Warmed:
    """Compiles the kernels of these recipes, or of all shipped ones and of each step as it is by
    default. No model or list is fetched for it."""
    from curate.engines.local import LocalEngine
    from curate.fetch.download import OFFLINE
    from curate.run.messages import Rehearsed, RehearseStep, StepRecord
    from curate.steps.contracts import CorpusStep, Product, Step, is_ours
    from curate.steps.recipe import load
    from curate.steps.shipped import names

    steps = [step for name in recipes or names() for step in load(name).steps]
    steps += [] if recipes else _by_default()
    tasks: dict[str, StepRecord | None] = {}
    if any(isinstance(step, Product) for step in steps):
        tasks["products"] = None
    missing: dict[str, str] = {}
    for step in steps:
        if not is_ours(step):
            missing[step.name] = "no step of llmcurate; its kernels are compiled when it first runs"
        elif isinstance(step, (Step, CorpusStep)):
            record = StepRecord.for_rehearsal(step)
            tasks.setdefault(json.dumps([step.name, record.settings]), record)
    offline = {OFFLINE: "1"}
    with (
        LocalEngine(workers, environment=offline) as engine,
        Progress("warmup", len(tasks), quiet) as progress,
    ):
        # Whose kernels another process compiles comes later, when most of these are there.
        waiting = list(tasks.values())
        for wait in (False, True):
            rehearsals = [RehearseStep(record, wait) for record in waiting]
            waiting = []
            function = "curate.run.worker.rehearsal:rehearse_one"
            for task, result in engine.map(function, rehearsals, Rehearsed):
                if result.busy:
                    waiting.append(task.step)
                    continue
                if result.missing and task.step:
                    missing[task.step.step] = result.missing
                progress.update()
        return Warmed(len(tasks), missing, engine.kernels)


def _by_default() -> list[Settings]:
    """Each step of ours that needs no setting."""
    from pydantic import ValidationError

    from curate.steps.contracts import fitting
    from curate.steps.registry import REGISTRY, step_class

    steps = []
    for name in REGISTRY:
        try:
            steps.append(fitting(step_class(name), {})())
        except ValidationError:  # it needs one
            continue
    return steps
