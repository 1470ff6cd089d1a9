"""Variants of a model, trained alike from several seeds, and how far they differ.

All seeds of a variant read as many tokens, or cost as many operations, as every other's. Runs of
one seed read the same text in the same order and are scored on the same held-out documents, so that
variants are compared seed by seed: the interval is that of the mean of these differences.

OUT/NAME/seed-0/ and so on are runs as ``pretrain`` makes them: what is finished is not done again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import flat, to_dict
from train.config import TrainConfig
from train.evaluate.trials import Trial, loss_curve, mean, run_trial
from train.loop.start import make_plan
from train.measure.accounting import flops_per_token, non_embedding, parameters
from train.model.plugins import blamed
from train.runs.plan import Plan

_NAME = re.compile(r"\w[\w.+-]*")
# By the name of a figure, where a run's summary has it.
FIGURES = {"held_out_loss": "held_out_loss", "bits_per_byte": "bits_per_byte"}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """``model``: a preset, or the folder of a trained model; ``changes``: its settings by dotted
    names. ``name`` is that of its folder.
    """

    name: str
    model: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What every run may take: ``tokens`` of its rows, or ``flops``, one of the two."""

    tokens: int | None = None
    flops: float | None = None

    def steps(self, plan: Plan) -> int:
        """Whole steps, at least one."""
        train = plan.train
        step = train.rows * train.context
        if self.flops is not None:
            return max(1, int(self.flops / (step * flops_per_token(plan.model, train.context))))
        assert self.tokens is not None
        return max(1, self.tokens // step)


def compare(
    shards: Path,
    out: Path,
    variants: list[Variant],
    *,
    train: TrainConfig,
    budget: Budget,
    seeds: int = 3,
    on_run: Callable[[str, int], None] = lambda name, seed: None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Train every variant from ``seeds`` seeds, from ``train.seed`` on; what it returns has a row a
    variant, and the differences of all but the first from the first. ``train``: settings of all;
    its steps follow from the budget. Raises ``LlmcurateError``, before anything is trained where
    two variants cannot be compared.
    """
    with blamed():
        plans = _plans(shards, variants, train)
    numbers = range(train.seed, train.seed + seeds)
    runs: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in variants}
    for seed in numbers:  # all variants of a seed first: an early end leaves whole comparisons
        for variant in variants:
            trial = Trial(
                name=variant.name,
                shards=shards,
                train=replace(train, seed=seed, steps=budget.steps(plans[variant.name])),
                model=variant.model,
                changes=variant.changes,
            )
            on_run(variant.name, seed)
            runs[variant.name].append(run_trial(trial, out, on_progress))
    first = runs[variants[0].name]
    return {
        "shards": str(shards),
        "tokens": budget.tokens,
        "flops": budget.flops,
        "seeds": list(numbers),
        "objective": to_dict(plans[variants[0].name].train.objective),
        "train": flat(to_dict(replace(train, steps=1))),
        "device": first[0]["summary"]["device"],
        "variants": [
            _row(each, plans[each.name], runs[each.name], first if nth else None)
            for nth, each in enumerate(variants)
        ],
    }


def _plans(shards: Path, variants: list[Variant], train: TrainConfig) -> dict[str, Plan]:
    """What each variant would be; raises where their losses would not be of the same thing."""
    if train.stages:
        raise UsageError("stages: a comparison has one stage; leave them out")
    plans: dict[str, Plan] = {}
    for variant in variants:
        if not _NAME.fullmatch(variant.name):
            raise UsageError(f"variant {variant.name!r}: a name has letters, digits, and . _ + -")
        if variant.name in plans:
            raise UsageError(f"variant {variant.name} is there twice: name one anew")
        try:
            plan, _ = make_plan(shards, variant.model, train, variant.changes)
        except LlmcurateError as error:
            raise type(error)(f"{variant.name}: {error}") from error
        plans[variant.name] = plan
    base, *others = variants
    for other in others:
        ours, theirs = (plans[each.name].train.objective for each in (other, base))
        if ours != theirs:
            raise UsageError(
                f"{other.name} learns {ours.kind} and {base.name} {theirs.kind}, or otherwise:"
                " their losses are not of the same thing; set one objective for all"
            )
    return plans


def _row(
    variant: Variant, plan: Plan, runs: list[dict[str, Any]], first: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """A variant's figures: the mean over seeds and its interval, and beside the ``first`` variant's
    runs the difference, seed by seed.
    """
    train = plan.train
    per_token = flops_per_token(plan.model, train.context)
    steps = runs[0]["summary"]["steps"]
    tokens = steps * train.rows * train.context
    row: dict[str, Any] = {
        "name": variant.name,
        "model": variant.model,
        "changes": variant.changes,
        "parameters": parameters(plan.model),
        "non_embedding": non_embedding(plan.model),
        "flops_per_token": per_token,
        "steps": steps,
        "tokens": tokens,
        "epochs": runs[0]["summary"]["epochs"],
        "flops": tokens * per_token,
        "runs": [
            {
                "seed": run["seed"],
                "first_loss": run["summary"]["first_loss"],
                "last_loss": run["summary"]["last_loss"],
                "epochs": run["summary"]["epochs"],
                **{name: run["summary"][key] for name, key in FIGURES.items()},
                "seconds": run["summary"]["timing"]["seconds"],
            }
            for run in runs
        ],
        "tokens_per_second": float(
            np.median([run["summary"]["timing"]["tokens_per_second"] for run in runs])
        ),
        "curve": loss_curve([run["folder"] for run in runs], train.rows * train.context),
    }
    for name, key in FIGURES.items():
        values = [run["summary"][key] for run in runs]
        row[name] = mean(values)
        if first is not None:
            bases = [run["summary"][key] for run in first]
            pairs = zip(values, bases, strict=True)
            known = None not in (*values, *bases)
            differences = [a - b for a, b in pairs] if known else [None]
            row[f"{name}_difference"] = mean(differences)
    return row
