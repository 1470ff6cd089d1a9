"""Plan a run for a budget: parameters, tokens and hours, by published laws and by a fit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from llmcurate.base.errors import UsageError
from train.lab.scaling import laws
from train.lab.scaling.fit import Fits
from train.measure.describe import find_gpu

PUBLISHED = {
    "Hoffmann et al. 2022, approach 3": laws.HOFFMANN,
    "Besiroglu et al. 2024": laws.BESIROGLU,
    "Muennighoff et al. 2023": laws.MUENNIGHOFF,
}


@dataclass(frozen=True)
class Row:
    """The best model for a budget by one law. ``bound`` is True if text must be repeated."""

    by: str
    parameters: float
    interval: list[float] | None
    tokens: float
    tokens_a_parameter: float
    epochs: float | None
    loss: float | None = None
    bound: bool = False


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """A plan for a budget. ``rows`` has the best parameters, tokens and loss by each law.
    ``hours``: the time on one ``gpu`` at the fraction ``mfu`` of ``peak``, its speed in bfloat16.
    ``measured_to``: FLOPs of the largest fitted run. ``warnings``: what the fits leave open."""

    flops: float
    gpu: str
    peak: float
    mfu: float
    hours: float
    unique_tokens: float | None
    measured_to: float | None
    rows: list[Row]
    warnings: list[str]


def read_fits(path: Path) -> Fits:
    """Read a scaling.json, given its path or its folder. Raises ``LlmcurateError`` on failure."""
    path = path / "scaling.json" if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8-sig")
        json.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    try:
        return Fits.from_json(text)
    except ValueError:
        line = f"{path}: no fit in this file: give the output of `llmcurate scaling fit`"
        raise UsageError(line) from None


def plan(
    flops: float,
    *,
    gpu: str = "H200",
    mfu: float = 0.4,
    unique: float | None = None,
    fitted: Fits | None = None,
) -> BudgetPlan:
    """Plan a run for a budget of ``flops`` operations, by each law. ``unique`` is the number of
    distinct tokens. If the best run by a law of Chinchilla's form needs more than ``unique``
    tokens, the best run is computed again; repeated tokens then count for less (Muennighoff et al.
    2023). Raises ``LlmcurateError`` for an unknown ``gpu``."""
    device = find_gpu(gpu)
    rows = [_row("20 tokens per parameter", *laws.rule_of_twenty(flops), unique)]
    rows += [_of_law(name, law, flops, unique, laws.Repeats()) for name, law in PUBLISHED.items()]
    rows.append(_row("Kaplan et al. 2020, L(N, D)", *laws.KAPLAN.best.optimum(flops), unique))
    warnings = []
    if fitted is not None:
        rows += _fitted(fitted, flops, unique)
        warnings = _undetermined(fitted, unique is not None)
    return BudgetPlan(
        flops=flops,
        gpu=device.name,
        peak=device.flops,
        mfu=mfu,
        hours=flops / (device.flops * mfu) / 3600,
        unique_tokens=unique,
        measured_to=fitted.flops[1] if fitted else None,
        rows=rows,
        warnings=warnings,
    )


def _undetermined(fitted: Fits, repeated: bool) -> list[str]:
    lines = [
        f"fit, approach {approach}: an exponent is at the limit of the fit: ignore this row"
        for approach, figures in fitted.approaches.items()
        if figures.at_limit
    ]
    if repeated and fitted.repeats and fitted.repeats.at_limit:
        lines.append("fit: an R* is at the limit of the fit: the published values are used")
    return lines


def _fitted(fitted: Fits, flops: float, unique: float | None) -> list[Row]:
    own = fitted.repeats
    repeats = laws.Repeats()
    if own and not own.at_limit:
        repeats = laws.Repeats(tokens=own.tokens, parameters=own.parameters)
    rows = []
    for approach, figures in fitted.approaches.items():
        if figures.reason is not None:
            continue
        name = f"fit, approach {approach}"
        if figures.law is not None:
            row = _of_law(name, laws.Chinchilla(**figures.law), flops, unique, repeats)
        else:
            row = _row(name, *figures.best.optimum(flops), unique)
        rows.append(row if row.bound else replace(row, interval=figures.interval_at(flops)))
    return rows


def _of_law(
    name: str, law: laws.Chinchilla, flops: float, unique: float | None, repeats: laws.Repeats
) -> Row:
    best = law.best.optimum(flops)
    if unique is None or best[1] <= unique:
        return replace(_row(name, *best, unique), loss=law.loss(*best))
    best = repeats.optimum(law, flops, unique)
    loss = float(repeats.loss(law, *best, unique))
    return replace(_row(name, *best, unique), loss=loss, bound=True)


def _row(name: str, parameters: float, tokens: float, unique: float | None) -> Row:
    epochs = None if unique is None else tokens / unique
    return Row(name, parameters, None, tokens, tokens / parameters, epochs)
