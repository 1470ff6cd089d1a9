"""Variants of a model, trained alike from several seeds, and how far they differ.

All seeds of a variant read as many tokens, or cost as many operations, as every other's. Runs of
one seed read the same text in the same order and are scored on the same held-out documents, so that
variants are compared seed by seed: the interval is that of the mean of these differences.

OUT/NAME/seed-0/ and so on are runs as ``pretrain`` makes them: what is finished is not done again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from llmcurate.base.errors import LlmcurateError, UsageError
from llmcurate.base.settings import flat, to_dict
from train.config import TrainConfig
from train.evaluate.paired import Mean
from train.loop.pretrain import pretrain
from train.loop.start import make_plan
from train.loop.training import Progress
from train.measure.accounting import flops_per_token, non_embedding, parameters
from train.model.plugins import blamed
from train.objective_settings import Objective
from train.runs.metrics import read_lines
from train.runs.plan import Plan

POINTS = 100  # of a curve


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``name``: of what is compared, and of its folder. ``shards``: None where the settings have
    sources. ``model``: a preset, or the folder of a
    trained model; ``changes``: its settings by dotted names.
    """

    name: str
    shards: Path | None
    train: TrainConfig
    model: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)

    def folder(self, out: Path) -> Path:
        """Where its run lies."""
        return out / self.name / f"seed-{self.train.seed}"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trial that is finished: figures of its summary."""

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
    """Train it. Raises ``LlmcurateError`` with the trial's name."""
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
    """(tokens read, loss), the mean over runs and over as many steps as there are to a point.
    ``tokens``: of a step.
    """
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
    """(tokens read, bits a byte of all these texts together), the mean over the runs that were
    scored there.
    """
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


@dataclass(frozen=True, kw_only=True)
class Row(Variant):
    """A variant's figures; the differences are of all variants but the first, from that."""

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
        """The names of what there is."""
        names = [each.name for each in fields(self)]
        first = self.held_out_loss_difference is None
        return [name for name in names if not (first and name.endswith("_difference"))]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A row a variant, and what all have in common."""

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
    """Train every variant from ``seeds`` seeds, from ``train.seed`` on. ``train``: settings of all;
    its steps follow from the budget. Raises ``LlmcurateError``, before anything is trained where
    two variants cannot be compared.
    """
    with blamed():
        plans = _plans(shards, variants, train)
    numbers = range(train.seed, train.seed + seeds)
    runs: dict[str, list[Trained]] = {variant.name: [] for variant in variants}
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
    return Comparison(
        shards=str(shards),
        tokens=budget.tokens,
        flops=budget.flops,
        seeds=list(numbers),
        objective=plans[variants[0].name].train.objective,
        train=flat(to_dict(replace(train, steps=1))),
        device=first[0].device,
        variants=[
            _row(each, plans[each.name], runs[each.name], first if nth else None)
            for nth, each in enumerate(variants)
        ],
    )


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


def _row(variant: Variant, plan: Plan, runs: list[Trained], first: list[Trained] | None) -> Row:
    train = plan.train

    def of(name: str) -> tuple[Mean | None, Mean | None]:
        values = [getattr(run, name) for run in runs]
        bases = [getattr(run, name) for run in first or ()]
        own = None if None in values else Mean.over(values)
        if own is None or not bases or None in bases:
            return own, None
        return own, Mean.over([a - b for a, b in zip(values, bases, strict=True)])

    (loss, loss_difference), (bits, bits_difference) = of("held_out_loss"), of("bits_per_byte")
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
