"""Compiling ahead all kernels that this machine will need: `llmcurate warmup`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import ValidationError

from curate.engines.local import LocalEngine
from curate.fetch.download import OFFLINE
from curate.run.messages import Rehearsed, RehearseStep, StepRecord
from curate.steps.contracts import CorpusStep, Product, Settings, Step, fitting, is_ours
from curate.steps.recipe import load
from curate.steps.registry import REGISTRY, step_class
from curate.steps.shipped import names
from llmcurate.base.terminal import Progress


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
    steps = []
    for name in REGISTRY:
        try:
            steps.append(fitting(step_class(name), {})())
        except ValidationError:  # it needs one
            continue
    return steps
