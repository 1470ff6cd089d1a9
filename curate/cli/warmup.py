"""`llmcurate warmup`: compile kernels before the first run."""

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
            help="Recipes to compile for. The default is all shipped recipes and every step.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile kernels before the first run.

    A run compiles the kernels that it lacks, so this only saves time. If machines share a folder of
    kernels (NUMBA_CACHE_DIR), run this once per kind of processor.

    \b
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
    echo(f"prepared {steps}, compiled {kernels} to {kernels_folder()}")
    if not recipes and done.missing:
        lacking = ", ".join(sorted(done.missing))
        echo(f"not compiled, a model or list is missing (--json says which): {lacking}")
        return
    for step, why in done.missing.items():
        echo(f"not compiled: {step}: {why}")


@dataclass(frozen=True)
class Warmed:
    """The outcome of a warm-up."""

    steps: int  # number of steps whose kernels are ready
    missing: dict[str, str]  # {step: why its kernels were not compiled}
    compiled: int  # number of kernels that had to be compiled


def warm_up(recipes: list[str], workers: int, quiet: bool) -> Warmed:
    """Compile the kernels of these recipes, by default of all shipped recipes and all steps. Models
    and lists are not fetched for this."""
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
            missing[step.name] = (
                "runs code outside llmcurate; its kernels are compiled at its first run"
            )
        elif isinstance(step, (Step, CorpusStep)):
            record = StepRecord.for_rehearsal(step)
            tasks.setdefault(json.dumps([step.name, record.settings]), record)
    offline = {OFFLINE: "1"}
    with (
        LocalEngine(workers, environment=offline) as engine,
        Progress("warmup", len(tasks), quiet) as progress,
    ):
        # Skip kernels that another process is compiling; wait for them in a second round.
        waiting, ready = list(tasks.values()), 0
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
                ready += not result.missing
                progress.update()
        return Warmed(ready, missing, engine.kernels)


def _by_default() -> list[Settings]:
    from pydantic import ValidationError

    from curate.steps.contracts import fitting
    from curate.steps.registry import REGISTRY, step_class

    steps = []
    for name in REGISTRY:
        try:
            steps.append(fitting(step_class(name), {})())
        except ValidationError:  # it has a required setting
            continue
    return steps
