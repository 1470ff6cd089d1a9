"""A plan for a budget: parameters, tokens and hours, by published laws and by a fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from llmcurate.base.errors import UsageError
from train.lab.scaling.fit import interval
from train.lab.scaling.laws import (
    BESIROGLU,
    HOFFMANN,
    KAPLAN,
    MUENNIGHOFF,
    Chinchilla,
    Power,
    Repeats,
    rule_of_twenty,
)
from train.measure.describe import find_gpu

PUBLISHED = {
    "Hoffmann et al. 2022, approach 3": HOFFMANN,
    "Besiroglu et al. 2024": BESIROGLU,
    "Muennighoff et al. 2023": MUENNIGHOFF,
}


@dataclass(frozen=True)
class Row:
    """The best model of a budget by a law. ``bound``: the text is too little, and it knows it."""

    by: str
    parameters: float
    interval: list[float] | None
    tokens: float
    tokens_a_parameter: float
    epochs: float | None
    loss: float | None = None
    bound: bool = False


def plan(
    flops: float,
    *,
    gpu: str = "H200",
    mfu: float = 0.4,
    unique: float | None = None,
    fitted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """``rows``: N, D and loss by each law; ``hours`` of one ``gpu`` at a share ``mfu`` of its peak
    in bfloat16. ``unique``: distinct tokens that there are; where a law would have more it is
    solved again with Muennighoff et al.'s worth of repeated text. ``fitted``: figures of
    ``train.lab.scaling.fit``; ``warnings``: what its points do not determine. Raises
    ``LlmcurateError``.
    """
    device = find_gpu(gpu)
    rows = [_row("20 tokens a parameter", *rule_of_twenty(flops), unique)]
    rows += [_of_law(name, law, flops, unique, Repeats()) for name, law in PUBLISHED.items()]
    rows.append(_row("Kaplan et al. 2020, L(N, D)", *KAPLAN.best.optimum(flops), unique))
    warnings = []
    if fitted is not None:
        try:
            rows += _fitted(fitted, flops, unique)
            warnings = _undetermined(fitted, unique is not None)
        except (KeyError, TypeError, ValueError):
            message = "no fit in this file: give what `llmcurate scaling fit` wrote"
            raise UsageError(message) from None
    return {
        "flops": flops,
        "gpu": device.name,
        "peak": device.flops,
        "mfu": mfu,
        "hours": flops / (device.flops * mfu) / 3600,
        "unique_tokens": unique,
        "measured_to": fitted["flops"][1] if fitted else None,
        "rows": [asdict(row) for row in rows],
        "warnings": warnings,
    }


def _undetermined(fitted: dict[str, Any], repeated: bool) -> list[str]:
    lines = [
        f"fit, approach {approach}: an exponent is at the limit of the fit: its row says little"
        for approach, figures in fitted["approaches"].items()
        if figures.get("at_limit")
    ]
    if repeated and (fitted["repeats"] or {}).get("at_limit"):
        lines.append("fit: an R* is at the limit of the fit: the published ones are used")
    return lines


def _fitted(fitted: dict[str, Any], flops: float, unique: float | None) -> list[Row]:
    """A row an approach that the points allowed."""
    own = fitted["repeats"]
    repeats = Repeats()
    if own and not own.get("at_limit"):
        repeats = Repeats(tokens=own["tokens"], parameters=own["parameters"])
    rows = []
    for approach, figures in fitted["approaches"].items():
        if "reason" in figures:
            continue
        name = f"fit, approach {approach}"
        if "law" in figures:
            row = _of_law(name, Chinchilla(**figures["law"]), flops, unique, repeats)
        else:
            best = Power(figures["log_factor"], figures["exponent"])
            row = _row(name, *best.optimum(flops), unique)
        rows.append(row if row.bound else replace(row, interval=interval(figures, flops)))
    return rows


def _of_law(
    name: str, law: Chinchilla, flops: float, unique: float | None, repeats: Repeats
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
