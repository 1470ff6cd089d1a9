"""The search of a mixture for people: its lines on a terminal and its page."""

from __future__ import annotations

import shlex
from typing import Any

from curate.experiment.page import machine_line, with_interval
from llmcurate.base.disk.units import (
    counted,
    format_duration,
    format_percent,
    format_scaled,
    format_short,
)
from llmcurate.base.pages import templates
from llmcurate.base.terminal.tables import table

HEAD = ("", "predicted", "interval", "measured")


def source_head(figures: dict[str, Any]) -> list[str]:
    """Columns of the table of shares."""
    return ["source", "tokens", "natural", "optimum", "interval", "epochs", "best sampled"]


def source_cells(figures: dict[str, Any]) -> list[list[str]]:
    """Each source: its tokens, shares and epochs."""
    optimum, natural = figures["mixtures"]["optimum"], figures["mixtures"]["natural"]
    sampled = figures["mixtures"]["best sampled"]
    rows = []
    for source in figures["sources"]:
        name = source["name"]
        low, high = optimum["intervals"][name]
        rows.append(
            [
                name,
                format_short(source["tokens"]),
                format_percent(natural["shares"][name], 2),
                format_percent(optimum["shares"][name], 2),
                f"{format_percent(low)} to {format_percent(high)}",
                f"{optimum['epochs'][name]:.2f}",
                format_percent(sampled["shares"][name], 2),
            ]
        )
    return rows


def mixture_cells(figures: dict[str, Any]) -> list[list[str]]:
    """Each mixture: the target's bits a byte that are predicted and were measured."""
    rows = []
    for name, mixture in figures["mixtures"].items():
        low, high = mixture["interval"]
        measured = f"{mixture['measured']:.4f}" if "measured" in mixture else ""
        limits = f"{low:.4f} to {high:.4f}"
        rows.append([name, f"{mixture['predicted']:.4f}", limits, measured])
    return rows


REGRESSION_HEAD = ("held-out error", "RMSE", "rank correlation", "interval")


def regression_cells(figures: dict[str, Any]) -> list[list[str]]:
    """Each regression: its error on mixtures that it was not fitted to."""
    rows = []
    for name, error in figures["regressions"].items():
        low, high = error["interval"]
        shown = f"{error['rank_correlation']:.3f}"
        rows.append([name, f"{error['rmse']:.4f}", shown, f"{low:.3f} to {high:.3f}"])
    return rows


def verdicts(figures: dict[str, Any]) -> list[str]:
    """Whether the regression may be believed, and what the confirmation says."""
    chosen = figures["regression"]
    lines = []
    if not any(error["predicts"] for error in figures["regressions"].values()):
        lines.append(
            "neither regression ranks mixtures beyond chance: the interval of its rank correlation"
            " reaches 0; train more runs, or longer ones, before you believe an optimum"
        )
    elif not figures["regressions"][chosen]["predicts"]:
        lines.append(f"{chosen} does not rank mixtures beyond chance; the other regression does")
    else:
        lines.append(f"the optimum is predicted by the regression {chosen}")
    confirmed = figures["confirmed"]
    if confirmed is not None:
        difference = confirmed["difference"]
        shown = (
            f"trained from {counted(len(confirmed['seeds']), 'seed')}: optimum"
            f" {confirmed['optimum']:.4f}, natural {confirmed['natural']:.4f} bits a byte,"
            f" difference {with_interval(difference)}"
        )
        limits = difference["interval"]
        if limits is None:
            shown += "; one seed says nothing of chance"
        elif limits[0] <= 0 <= limits[1]:
            shown += ", which is not beyond chance"
        lines.append(shown)
    return lines


def about(figures: dict[str, Any]) -> list[str]:
    """What all runs have in common, and what they cost, in lines."""
    train, cost = figures["train"], figures["cost"]
    earlier = sum(point["earlier"] for point in figures["points"])
    count = counted(len(figures["points"]), "mixture")
    lines = [
        f"{count}{f' ({earlier} of earlier runs)' if earlier else ''}, seed {figures['seed']},"
        f" {counted(figures['tokens'], 'token')} each; model {figures['model']},"
        f" {counted(train['rows'], 'row')} of {train['context']}, learning rate {train['lr']:g}",
        f"for a run of {counted(round(figures['total']), 'token')}, at most"
        f" {figures['max_epochs']:g} epochs of a source",
        f"tokenizer: {figures['tokenizer']['origin']}",
        f"cost: {counted(cost['runs'], 'run')}, {format_duration(cost['seconds'])} of training in"
        f" sum, {counted(cost['tokens'], 'token')},"
        f" {format_scaled(cost['flops']).strip()}FLOP",
    ]
    return lines + [f"machine: {machine_line(machine)}" for machine in figures["machines"]]


def commands(figures: dict[str, Any], out: str = "OUT") -> list[str]:
    """Command lines that take the optimum up."""
    shares = figures["mixtures"]["optimum"]["shares"]
    weights = ",".join(f"{name}={100 * share:.2f}" for name, share in shares.items())
    lines = [f"llmcurate run {out}/mixture.yaml -o model --set pretrain.steps=N"]
    if figures["encoded"]:
        inputs = " ".join(f"{s['name']}={shlex.quote(s['input'])}" for s in figures["sources"])
        tokenizer = shlex.quote(figures["tokenizer"]["file"])
        lines.insert(
            0,
            f"llmcurate mix {inputs} --weights {weights} --total {figures['total']:.0f}"
            f" --max-epochs {figures['max_epochs']:g} --tokenizer {tokenizer} -o mixed",
        )
    else:
        lines.insert(0, f"--weights {weights}")
    return lines


def text(figures: dict[str, Any]) -> str:
    """The search for a terminal."""
    parts = [
        *about(figures),
        "",
        *table(REGRESSION_HEAD, regression_cells(figures)),
        "",
        *table(source_head(figures), source_cells(figures)),
        "",
        *table(("bits a byte", *HEAD[1:]), mixture_cells(figures)),
        "",
        *verdicts(figures),
        *commands(figures, figures["out"]),
    ]
    return "\n".join(parts)


def render(figures: dict[str, Any]) -> str:
    """mixtures.html."""
    names = [source["name"] for source in figures["sources"]]
    order = sorted(figures["points"], key=lambda point: point["bits_per_byte"])
    mixtures = figures["mixtures"]
    return templates.render(
        "evaluate/mixtures.html",
        figures=figures,
        names=names,
        about=about(figures),
        verdicts=verdicts(figures),
        commands=commands(figures, figures["out"]),
        source_head=source_head(figures),
        sources=source_cells(figures),
        head=("mixture", *HEAD[1:]),
        mixtures=mixture_cells(figures),
        regression_head=("regression", *REGRESSION_HEAD[1:]),
        regressions=regression_cells(figures),
        shares=[
            (name, [mixtures["optimum"]["shares"][name], mixtures["natural"]["shares"][name]])
            for name in names
        ],
        points=order,
        percent=format_percent,
    )
