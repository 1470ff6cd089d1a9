"""Compiling ahead all kernels that this machine will need: `llmcurate warmup`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from curate.engines.local import LocalEngine
from curate.fetch.download import OFFLINE
from curate.run.worker.specification import for_rehearsal
from curate.steps.contracts import CorpusStep, Product, Settings, Step
from curate.steps.recipe import load
from curate.steps.registry import REGISTRY, step_class
from curate.steps.shipped import names
from llmcurate.base.terminal.progress import Progress


def warm_up(recipes: list[str], workers: int, quiet: bool) -> dict[str, Any]:
    """Compiles the kernels of these recipes, or of all shipped ones and of each step as it is by
    default. Returns the numbers of `steps` that were rehearsed and of kernels that were `compiled`,
    and why a step is `missing`, by its name. No model or list is fetched for it."""
    steps = [step for name in recipes or names() for step in load(name).steps]
    steps += [] if recipes else _by_default()
    tasks: dict[str, Any] = {}
    if any(isinstance(step, Product) for step in steps):
        tasks["products"] = None
    missing: dict[str, str] = {}
    for step in steps:
        if step.own_source() or step.named_code():
            missing[step.name] = "no step of llmcurate; its kernels are compiled when it first runs"
        elif isinstance(step, (Step, CorpusStep)):
            identity = for_rehearsal(step)
            tasks.setdefault(json.dumps([step.name, identity["settings"]]), identity)
    offline = {OFFLINE: "1"}
    with (
        LocalEngine(workers, environment=offline) as engine,
        Progress("warmup", len(tasks), quiet) as progress,
    ):
        # Whose kernels another process compiles comes later, when most of these are there.
        waiting = list(tasks.values())
        for wait in (False, True):
            payloads = [{"identity": identity, "wait": wait} for identity in waiting]
            waiting = []
            function = "curate.run.worker.rehearsal:rehearse_one"
            for task, result in engine.map(function, payloads):
                if result["busy"]:
                    waiting.append(task["identity"])
                    continue
                if result["missing"]:
                    missing[task["identity"]["step"]] = result["missing"]
                progress.update()
        return {"steps": len(tasks), "missing": missing, "compiled": engine.kernels}


def _by_default() -> list[Settings]:
    """Each step of ours that needs no setting."""
    steps = []
    for name in REGISTRY:
        try:
            steps.append(step_class(name).fitting({})())
        except ValidationError:  # it needs one
            continue
    return steps
