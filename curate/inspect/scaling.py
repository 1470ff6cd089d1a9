"""Scaling laws: the sweep that `llmcurate scaling run` trains, the fit to it, and its page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.disk.files import write_text
from curate.disk.process import cores
from curate.disk.units import counted, format_duration, format_scaled
from curate.errors import UsageError
from curate.inspect import results
from curate.steps.recipe import Change
from curate.terminal.output import echo, echo_json
from curate.terminal.progress import Progress, say
from curate.terminal.tables import table

if TYPE_CHECKING:
    from curate.cli.model_settings import ScalingRun
    from train.judge.compare import Budget

SWEEP = "sweep.json"
# Scored once, at the end; checkpoints are for a sweep that is stopped.
SETTINGS = {
    "log_every": 1,
    "keep_checkpoints": 1,
    "keep_best": False,
    "checkpoint_every": 200,
    "eval_every": 1_000_000_000,
    "eval_tokens": 65_536,
}


def run_sweep(
    shards: Path, out: Path, chosen: ScalingRun, sets: list[str], as_json: bool, quiet: bool
) -> None:
    """Trains the sweep into OUT, prints its table and writes OUT/sweep.json. Raises TrainError."""
    results.check_folder(out)
    from train.config import TrainConfig
    from train.scaling.sweep import ladder, sweep
    from train.settings import from_dict, unflat

    settings = SETTINGS | chosen.model_dump(include={"seed", "rows", "context", "lr", "device"})
    common: dict[str, Any] = {}
    for item in map(Change.of, sets):
        if item.section not in ("model", "pretrain"):
            raise UsageError(f"{item.given}: write model.KEY=VALUE or pretrain.KEY=VALUE")
        (common if item.section == "model" else settings)[item.key] = item.value
    budgets = _budgets(chosen)
    variants = ladder(chosen.sizes, changes=common)
    total = chosen.seeds * len(variants) * len(budgets)
    with Progress("training a sweep", total, quiet) as progress:
        begun: list[str] = []

        def on_run(name: str, seed: int) -> None:
            progress.update(len(begun), f"{name}, seed {seed}")
            begun.append(f"{name}, seed {seed}")

        def on_progress(line: dict[str, Any]) -> None:
            at = f"{begun[-1]}, step {line['step']} of {line['steps']}"
            progress.update(progress.done, at)

        figures = sweep(
            shards,
            out,
            variants,
            budgets=budgets,
            train=from_dict(TrainConfig, unflat(settings), "pretrain"),
            seeds=chosen.seeds,
            on_run=on_run,
            on_progress=on_progress,
        )
    figures["cores"] = cores()
    write_text(out / SWEEP, json.dumps(figures, indent=1) + "\n")
    if as_json:
        echo_json(figures)
        return
    echo("\n".join(sweep_lines(figures)))
    say(f"wrote {out / SWEEP}; `llmcurate scaling fit {out}` fits laws to it", quiet)


def _budgets(chosen: ScalingRun) -> list[Budget]:
    """Those of --flops or of --tokens, each once."""
    from train.judge.compare import Budget

    kind, text = ("flops", chosen.flops) if chosen.flops else ("tokens", chosen.tokens)
    if not text or (chosen.flops and chosen.tokens):
        raise UsageError("give --flops or --tokens, one of the two")
    try:
        amounts = sorted({float(amount) for amount in text.split(",")})
    except ValueError:
        amounts = [0.0]
    if not 1 <= amounts[0] <= amounts[-1] < math.inf:
        raise UsageError(f"--{kind} {text}: give numbers with commas between them, as 1e11,1e12")
    if kind == "flops":
        return [Budget(flops=amount) for amount in amounts]
    return [Budget(tokens=int(amount)) for amount in amounts]


def machine(figures: dict[str, Any]) -> str:
    """`2 CPU cores`, or the kind of device."""
    return (
        counted(figures["cores"], "CPU core") if figures["device"] == "cpu" else figures["device"]
    )


def sweep_lines(figures: dict[str, Any]) -> list[str]:
    """The runs of a sweep as a table, and what they took."""
    points = figures["points"]
    head = (
        *("size", "parameters", "without embeddings", "tokens", "epochs", "FLOPs"),
        *("6ND / FLOPs", "seed", "held-out loss", "seconds"),
    )
    rows = [
        (
            point["name"],
            f"{point['parameters']:,}",
            f"{point['non_embedding']:,}",
            format_scaled(point["tokens"]),
            f"{point['tokens'] / point['unique_tokens']:.2f}",
            f"{point['flops']:.2e}",
            f"{6 * point['parameters'] * point['tokens'] / point['flops']:.2f}",
            str(point["seed"]),
            f"{point['loss']:.4f}",
            f"{point['seconds']:.0f}",
        )
        for point in points
    ]
    total = sum(point["flops"] for point in points)
    cost = (
        f"{counted(len(points), 'run')}, {total:.2e} FLOPs, {format_duration(figures['seconds'])}"
    )
    return [*table(head, rows), "", f"{cost} of training on {machine(figures)}"]
