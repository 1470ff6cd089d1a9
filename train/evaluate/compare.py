"""Compare variants of a model, each trained alike from several seeds.

Runs of one seed read the same text in the same order and are scored on the same held-out documents,
so variants are compared seed by seed. ``pretrain`` writes the runs to OUT/NAME/seed-0/ and so on;
finished runs are not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import flatten, to_dict
from train.config import TrainConfig
from train.evaluate.paired import Mean
from train.loop.pretrain import pretrain
from train.loop.start import make_plan
from train.loop.training import Progress
from train.measure.accounting import flops_per_token, non_embedding, parameters
from train.model.plugins import plugin_errors
from train.objective_settings import Objective
from train.runs.metrics import read_lines
from train.runs.plan import Plan

POINTS = 100  # at most, of a curve


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A run to train, in the folder NAME/seed-N. ``model`` is the name of a preset, or the folder
    of a trained model. ``shards`` is None if ``train`` names the sources of the text.
    """

    name: str
    shards: Path | None
    train: TrainConfig
    model: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)

    def folder(self, out: Path) -> Path:
        return out / self.name / f"seed-{self.train.seed}"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished run, with figures from its summary (train.json)."""

    JSON = (
        *("seed", "first_loss", "last_loss", "epochs", "held_out_loss", "bits_per_byte"),
        "seconds",
    )
    seed: int
    folder: Path
    steps: int
    device: str
    first_loss: float | None
    last_loss: float | None
    epochs: float
    held_out_loss: float
    bits_per_byte: float | None
    seconds: float
    tokens_per_second: float


def run_trial(trial: Trial, out: Path, on_progress: Progress | None = None) -> Trained:
    """Train one run. Errors are raised again with the trial's name and seed in their message."""
    folder = trial.folder(out)
    try:
        summary = pretrain(
            trial.shards,
            folder,
            model=trial.model,
            changes=trial.changes,
            train=trial.train,
            on_progress=on_progress,
        )
    except LlmcurateError as error:
        line = f"{trial.name}, seed {trial.train.seed}: {error}"
        raise type(error)(line) from error
    names = ("steps", "device", "first_loss", "last_loss", "epochs", "held_out_loss")
    return Trained(
        seed=trial.train.seed,
        folder=folder,
        **{name: summary[name] for name in (*names, "bits_per_byte")},
        seconds=summary["timing"]["seconds"],
        tokens_per_second=summary["timing"]["tokens_per_second"],
    )


def loss_curve(folders: list[Path], tokens: int) -> list[tuple[int, float]]:
    """Return points (tokens read so far, mean loss of the runs). A step reads ``tokens`` tokens."""
    columns = []
    for folder in folders:
        lines = read_lines(folder / "metrics.jsonl")
        losses = [line["loss"] if line.get("loss") is not None else np.nan for line in lines]
        columns.append(losses)
    steps = min(map(len, columns))
    losses = np.nanmean([column[:steps] for column in columns], axis=0)
    stride = -(-steps // POINTS)
    starts = range(0, steps, stride)
    return [
        (min(at + stride, steps) * tokens, float(np.nanmean(losses[at : at + stride])))
        for at in starts
    ]


def text_curve(folders: list[Path], texts: list[str], tokens: int) -> list[tuple[int, float]]:
    """Return points (tokens read so far, bits per byte of all ``texts``), averaged over runs."""
    points: dict[int, list[float]] = {}
    for folder in folders:
        for line in read_lines(folder / "metrics.jsonl"):
            scores = [line.get("eval", {}).get(name) for name in texts]
            if scores and None not in scores and all(score["bytes"] for score in scores):
                bits = sum(score["bits_per_byte"] * score["bytes"] for score in scores)
                total = sum(score["bytes"] for score in scores)
                points.setdefault(line["step"] * tokens, []).append(bits / total)
    return [(at, float(np.mean(values))) for at, values in sorted(points.items())]


_NAME = re.compile(r"\w[\w.+-]*")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model to compare: a preset or a trained model's folder, and ``changes`` to its settings."""

    name: str
    model: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The budget of each run, either in ``tokens`` or in floating-point operations."""

    tokens: int | None = None
    flops: float | None = None

    def steps(self, plan: Plan) -> int:
        """Return the number of whole steps that the budget pays for, at least one."""
        train = plan.train
        step = train.rows * train.context
        if self.flops is not None:
            return max(1, int(self.flops / (step * flops_per_token(plan.model, train.context))))
        assert self.tokens is not None
        return max(1, self.tokens // step)


@dataclass(frozen=True, kw_only=True)
class Row(Variant):
    """The figures of a variant, and its differences from the first variant."""

    parameters: int
    non_embedding: int
    flops_per_token: float
    steps: int
    tokens: int
    epochs: float
    flops: float
    runs: list[Trained]
    tokens_per_second: float
    curve: list[tuple[int, float]]
    held_out_loss: Mean
    held_out_loss_difference: Mean | None
    bits_per_byte: Mean | None
    bits_per_byte_difference: Mean | None

    @property
    def JSON(self) -> list[str]:
        """The names of the fields to write. The first variant has no differences to write."""
        names = [each.name for each in fields(self)]
        first = self.held_out_loss_difference is None
        return [name for name in names if not (first and name.endswith("_difference"))]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of a comparison: a row for each variant, and the settings they share."""

    shards: str
    tokens: int | None
    flops: float | None
    seeds: list[int]
    objective: Objective
    train: dict[str, Any]
    device: str
    variants: list[Row]


def compare(
    shards: Path,
    out: Path,
    variants: list[Variant],
    *,
    train: TrainConfig,
    budget: Budget,
    seeds: int = 3,
    on_run: Callable[[str, int], None] = lambda name, seed: None,
    on_progress: Progress | None = None,
) -> Comparison:
    """Train each variant with ``seeds`` seeds, from ``train.seed`` on. ``budget`` decides the
    number of steps. ``on_run`` is called with the name and seed of each run. Raises
    ``LlmcurateError`` if the variants cannot be compared or a run fails."""
    with plugin_errors():
        plans = _plans(shards, variants, train)
    numbers = range(train.seed, train.seed + seeds)
    runs: dict[str, list[Trained]] = {variant.name: [] for variant in variants}
    for seed in numbers:  # seed by seed: a stopped comparison still has complete seeds
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
    return Comparison(
        shards=str(shards),
        tokens=budget.tokens,
        flops=budget.flops,
        seeds=list(numbers),
        objective=plans[variants[0].name].train.objective,
        train=flatten(to_dict(replace(train, steps=1))),
        device=first[0].device,
        variants=[
            _row(each, plans[each.name], runs[each.name], first if nth else None)
            for nth, each in enumerate(variants)
        ],
    )


def _plans(shards: Path, variants: list[Variant], train: TrainConfig) -> dict[str, Plan]:
    if train.stages:
        raise UsageError("stages: a comparison has one stage; leave them out")
    plans: dict[str, Plan] = {}
    for variant in variants:
        if not _NAME.fullmatch(variant.name):
            raise UsageError(f"variant {variant.name!r}: a name has letters, digits, and . _ + -")
        if variant.name in plans:
            raise UsageError(f"variant {variant.name} is given twice: rename one")
        try:
            plan, _ = make_plan(shards, variant.model, train, variant.changes)
        except LlmcurateError as error:
            raise type(error)(f"{variant.name}: {error}") from error
        plans[variant.name] = plan
    base, *others = variants
    for other in others:
        own, base_objective = (plans[each.name].train.objective for each in (other, base))
        if own != base_objective:
            raise UsageError(
                f"{other.name} learns {own.kind} and {base.name} {base_objective.kind}, or with"
                " other settings: their losses cannot be compared; set one objective for all"
            )
    return plans


def _row(variant: Variant, plan: Plan, runs: list[Trained], first: list[Trained] | None) -> Row:
    train = plan.train

    def mean(name: str) -> tuple[Mean | None, Mean | None]:
        values = [getattr(run, name) for run in runs]
        bases = [getattr(run, name) for run in first or ()]
        own = None if None in values else Mean.over(values)
        if own is None or not bases or None in bases:
            return own, None
        return own, Mean.over([a - b for a, b in zip(values, bases, strict=True)])

    loss, loss_difference = mean("held_out_loss")
    bits, bits_difference = mean("bits_per_byte")
    assert loss is not None
    tokens = runs[0].steps * train.rows * train.context
    per_token = flops_per_token(plan.model, train.context)
    return Row(
        **vars(variant),
        parameters=parameters(plan.model),
        non_embedding=non_embedding(plan.model),
        flops_per_token=per_token,
        steps=runs[0].steps,
        tokens=tokens,
        epochs=runs[0].epochs,
        flops=tokens * per_token,
        runs=runs,
        tokens_per_second=float(np.median([run.tokens_per_second for run in runs])),
        curve=loss_curve([run.folder for run in runs], train.rows * train.context),
        held_out_loss=loss,
        bits_per_byte=bits,
        held_out_loss_difference=loss_difference,
        bits_per_byte_difference=bits_difference,
    )
