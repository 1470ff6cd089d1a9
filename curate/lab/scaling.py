"""Scaling laws: sweeps of training runs, laws fitted to their losses, and plans for a budget."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from curate.inspect.results import Findings, check_folder
from curate.steps.recipe import Change
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.process import cores
from llmcurate.base.disk.units import (
    counted,
    format_duration,
    format_power,
    format_scaled,
    parse_count,
)
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import json_values
from llmcurate.base.terminal import Progress, echo, echo_json, say, table

if TYPE_CHECKING:
    from curate.api.model_settings import ScalingFit, ScalingPlan, ScalingRun
    from curate.experiment.runs import RunTask
    from train.lab.scaling.fit import Fits, Measured, Sweep
    from train.lab.scaling.plan import BudgetPlan

SWEEP = "sweep.json"
MULTIPLES = (1, 10, 100)  # multiples of the points' largest budget at which a fit is shown
FITTED = ("approach", "exponent of N", "drawn", *(f"N at {times} x" for times in MULTIPLES))
# Runs are scored once, at the end. Checkpoints let an interrupted sweep resume.
SETTINGS = {
    "log_every": 1,
    "keep_checkpoints": 1,
    "keep_best": False,
    "checkpoint_every": 200,
    "eval_every": 1_000_000_000,
    "eval_tokens": 65_536,
}


def run_sweep(
    shards: Path,
    out: Path,
    chosen: ScalingRun,
    sets: list[str],
    as_json: bool,
    quiet: bool,
    dry_run: bool = False,
) -> None:
    """Train a sweep into `out`, print its table and write OUT/sweep.json. Raises LlmcurateError."""
    from curate.experiment.budget import cost
    from curate.experiment.runs import Training, make_runs
    from curate.products.pretraining import NAMES
    from curate.run.records import Options
    from llmcurate.base.settings import flatten, from_dict, to_dict, unflatten
    from train.config import TrainConfig
    from train.device import pick_device
    from train.lab.scaling.fit import Sweep
    from train.lab.scaling.sweep import found_by, ladder, parts_of

    items = [Change.of(text).within(NAMES) for text in sets]
    own = {item.key: item.value for item in items if item.section != "model"}
    changes = {item.key: item.value for item in items if item.section == "model"}
    settings = chosen.model_dump(include={"rows", "context", "lr", "device"})
    settings = {**SETTINGS, **settings, **own}
    train = from_dict(TrainConfig, unflatten({**settings, "steps": 1}), "pretrain")
    kind, text = ("flops", chosen.flops) if chosen.flops else ("tokens", chosen.tokens)
    if not text or (chosen.flops and chosen.tokens):
        raise UsageError("give either --flops or --tokens")
    amounts = _amounts(kind, text)
    distinct = chosen.unique_tokens
    unique = [int(item) for item in _amounts("unique-tokens", distinct)] if distinct else []
    sizes, parts = ladder(chosen.sizes, changes=changes), parts_of(kind, amounts, unique)
    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    if dry_run:
        total = len(seeds) * len(sizes) * len(parts)
        shown = f"{kind} {chosen.flops or chosen.tokens}"
        echo(f"would train {counted(total, 'run')} on {shards}: sizes {chosen.sizes}; {shown}")
        return
    check_folder(out)
    groups: list[tuple[str, list[RunTask]]] = []
    for amount, most in parts:
        folder = out / f"{kind}-{amount:g}{'' if most is None else f'-unique-{most:g}'}"
        for name, size in sizes.items():
            training = Training("tiny", size, 1, {**settings, "unique_tokens": most}, {})
            _, flops = cost(shards, "tiny", training)
            tokens = amount / flops if kind == "flops" else amount
            steps = max(1, int(tokens / training.step))
            made = sum(len(tasks) for _, tasks in groups)
            tasks = [
                training.task(name, shards, seed, steps, folder, made + part)
                for part, seed in enumerate(seeds)
            ]
            groups.append((name, tasks))
    tasks = [task for _, own_tasks in groups for task in own_tasks]
    make_runs(tasks, Options(quiet=quiet), "training a sweep")
    found = [found_by(name, [task.folder for task in own]) for name, own in groups]
    points = [point for own_points, _ in found for point in own_points]
    figures = Sweep(
        shards=str(shards),
        seeds=list(seeds),
        train=flatten(to_dict(train)),
        device=pick_device(chosen.device).type,
        seconds=sum(point.seconds for point in points),
        points=points,
        curves=[curve for _, curves in found for curve in curves],
        cores=cores(),
    )
    write_text(out / SWEEP, json.dumps(json_values(figures), indent=1) + "\n")
    if as_json:
        echo_json(figures)
        return
    echo("\n".join(sweep_lines(figures)))
    say(f"wrote {out / SWEEP}", quiet)


def _amounts(option: str, text: str) -> list[float]:
    try:
        amounts = sorted({parse_count(amount) for amount in text.split(",")})
    except ValueError:
        amounts = [0.0]
    if not 1 <= amounts[0] <= amounts[-1] < math.inf:
        raise UsageError(f"--{option} {text}: give numbers separated by commas, such as 1e11,1e12")
    return amounts


def sweep_lines(figures: Sweep) -> list[str]:
    """Return the lines of a table of a sweep's runs, followed by a line on their cost."""
    points = figures.points
    head = (
        *("size", "parameters", "without embeddings", "tokens", "epochs", "FLOPs"),
        *("6ND / FLOPs", "seed", "held-out loss", "seconds"),
    )
    rows = [
        (
            point.name,
            f"{point.parameters:,}",
            f"{point.non_embedding:,}",
            format_scaled(point.tokens),
            f"{point.epochs:.3g}",
            format_power(point.flops),
            f"{6 * point.parameters * point.tokens / point.flops:.2f}",
            str(point.seed),
            f"{point.loss:.4f}",
            f"{point.seconds:.0f}",
        )
        for point in points
    ]
    total = sum(point.flops for point in points)
    cpu = figures.device == "cpu"
    machine = counted(figures.cores, "CPU core") if cpu else figures.device
    cost = f"{format_power(total)} FLOPs, {format_duration(figures.seconds)} of training"
    return [*table(head, rows), "", f"{counted(len(points), 'run')}, {cost} on {machine}"]


def fit_points(
    path: Path, out: Path | None, chosen: ScalingFit, as_json: bool, quiet: bool = False
) -> None:
    """Fit the laws, print them, and write scaling.json and scaling.html. Raises LlmcurateError."""
    from train.lab.scaling.fit import fit, read

    measured = read(path)
    out = out or (path if path.is_dir() else None)
    check_folder(out)
    with Progress("resampling points", 4 * chosen.resamples, quiet) as progress:
        options = {"seed": chosen.seed, "resamples": chosen.resamples}
        fits = fit(measured, on_resample=progress.update, **options)
    LawFits(fits, measured).show(out, as_json)


def _amount(number: float) -> str:
    return format_scaled(number).replace("G", "B").strip()


def _with_limits(value: float, ends: Sequence[float] | None, show: Callable[[float], str]) -> str:
    return show(value) + (f" ({show(ends[0])} to {show(ends[1])})" if ends else "")


Series = tuple[str, list[Any], list[Any]]  # name, dots, line


@dataclass(frozen=True)
class LawFits(Findings):
    """The report on scaling laws."""

    NAME = "scaling"
    TEMPLATE = "evaluate/scaling.html"
    SHOWN: ClassVar[dict[str, Any]] = {"head": FITTED}
    JSON = "figures"
    figures: Fits  # the fitted laws
    measured: Measured  # the points to which they are fitted

    def rows(self) -> list[list[str]]:
        """Return one table row per approach: the exponent, the number of resamples, and the best
        model size at several multiples (MULTIPLES) of the largest budget, or why there is no
        fit."""
        rows = []
        fits = {**self.figures.approaches, "Kaplan's law": self.figures.kaplan}
        for name, own in fits.items():
            if own.reason is not None:
                rows.append([name, f"none: {own.reason}", *("" for _ in FITTED[2:])])
                continue
            row = [name, _with_limits(own.exponent, own.interval, "{:.3f}".format)]
            row.append(f"{len(own.resamples)} of {self.figures.resamples}")
            for flops in (times * self.figures.flops[1] for times in MULTIPLES):
                best = own.best.optimum(flops)[0]
                row.append(_with_limits(best, own.interval_at(flops), _amount))
            rows.append(row)
        return rows

    def laws(self) -> list[list[str]]:
        laws = {
            "Chinchilla's": self.figures.approaches["3: parametric"],
            "Kaplan's": self.figures.kaplan,
        }
        rows = [
            [law, name, _with_limits(value, (own.intervals or {})[name], "{:.4g}".format)]
            for law, own in laws.items()
            for name, value in (own.law or {}).items()
        ]
        repeats = self.figures.repeats
        for name, title in (("tokens", "R_D*"), ("parameters", "R_N*")) if repeats else ():
            value = getattr(repeats, name)
            ends = repeats.intervals.get(name) if repeats else None
            own_value = _with_limits(value, ends, "{:.4g}".format)
            rows.append(["repetition", title, own_value if ends else f"{value:.4g}, as published"])
        return rows

    def warnings(self) -> list[str]:
        laws = {
            "Chinchilla's law: an exponent": self.figures.approaches["3: parametric"],
            "Kaplan's law: an exponent": self.figures.kaplan,
            "repetition: an R*": self.figures.repeats,
        }
        return [
            f"{parameter} is at the limit of the fit: the points do not determine it"
            for parameter, own in laws.items()
            if own is not None and own.at_limit
        ]

    def sweep(self) -> str:
        """Return a line on the cost of the runs, or "" if the points are not from a sweep."""
        return sweep_lines(self.measured.sweep)[-1] if self.measured.sweep else ""

    def about(self) -> str:
        low, high = map(format_power, self.figures.flops)
        resamples = counted(self.figures.resamples, "resample")
        return (
            f"{counted(self.figures.points, 'point')} of {low} to {high} FLOPs; in"
            f" brackets 95 % intervals from {resamples}, seed {self.figures.seed}"
        )

    def text(self) -> str:
        lines = [self.about(), *self.warnings(), "", *table(FITTED, self.rows())]
        lines.append(
            f"x: times {format_power(self.figures.flops[1])} FLOPs, the largest budget of a point"
        )
        constants = table(("law", "constant", ""), self.laws(), left=(0, 1, 2))
        return "\n".join([*lines, "", *constants])

    def parabolas(self) -> list[Series]:
        """Return, for each budget, its points and the parabola fitted to them."""
        drawn: list[Series] = []
        for parabola in self.figures.approaches["2: IsoFLOP"].parabolas or ():
            low, high = min(parabola.sizes), max(parabola.sizes)
            a, b, c = parabola.curve
            sizes = [low * (high / low) ** (nth / 40) for nth in range(41)]
            line = [(size, (a * math.log(size) + b) * math.log(size) + c) for size in sizes]
            dots = list(zip(parabola.sizes, parabola.losses, strict=True))
            drawn.append((f"{format_power(parabola.flops)} FLOPs", dots, line))
        return drawn

    def curves(self) -> list[Series]:
        """Return the loss curve of the most expensive run of each size. The first tenth of a curve
        is left out, because its steep fall would hide the end."""
        by_cost = sorted(self.measured.curves, key=lambda curve: curve.flops[-1])
        longest = {curve.parameters: curve for curve in by_cost}
        series: list[Series] = []
        for size, curve in sorted(longest.items()):
            points = list(zip(curve.flops, curve.loss, strict=True))
            if len(points) > 1:
                series.append((f"{size:,.0f} parameters", [], points[len(points) // 10 :]))
        return series

    def best(self) -> list[Series]:
        """Return the curves of the best model size by budget: a line for each of Hoffmann et al.'s
        ways (approaches) to fit a law, and one for the rule of 20 tokens per parameter. An approach
        that fits a parabola per budget also has dots at the minima of the parabolas."""
        from train.lab.scaling.laws import rule_of_twenty

        low, high = self.figures.flops[0], self.figures.flops[1] * MULTIPLES[-1]
        budgets = [low * (high / low) ** (nth / 40) for nth in range(41)]
        series = []
        for name, own in self.figures.approaches.items():
            inside = [item for item in own.parabolas or () if item.parameters is not None]
            dots = [(item.flops, item.parameters) for item in inside]
            if own.reason is None:
                line = [(flops, own.best.optimum(flops)[0]) for flops in budgets]
                series.append((f"approach {name}", dots, line))
        rule = [(flops, rule_of_twenty(flops)[0]) for flops in budgets]
        return [*series, ("20 tokens per parameter", [], rule)]


def plan_budget(chosen: ScalingPlan, as_json: bool) -> None:
    """Print the plan for a budget. Raises LlmcurateError."""
    from train.lab.scaling.plan import plan, read_fits

    fitted = None if chosen.fit is None else read_fits(chosen.fit)
    figures = plan(
        chosen.flops,
        gpu=chosen.gpu,
        mfu=chosen.mfu,
        unique=chosen.unique_tokens,
        fitted=fitted,
    )
    echo_json(figures) if as_json else echo("\n".join(plan_lines(figures)))


def plan_lines(figures: BudgetPlan) -> list[str]:
    unique, hours = figures.unique_tokens, figures.hours
    time = f"{hours:,.1f} h" if hours >= 1 else format_duration(3600 * hours)
    lines = [
        f"{format_power(figures.flops)} FLOPs: {time} of one {figures.gpu} at"
        f" {100 * figures.mfu:.0f} % of its {_amount(figures.peak)}FLOP/s in bfloat16;"
        " C = 6ND, without attention"
    ]
    if unique:
        lines.append(f"{_amount(unique)} distinct tokens; *: repeated text counts less")
    head = ["by", "parameters", "tokens", "tokens per parameter", "loss"]
    rows = [
        [
            row.by + (" *" if row.bound else ""),
            _with_limits(row.parameters, row.interval, _amount),
            _amount(row.tokens),
            f"{row.tokens_a_parameter:.1f}",
            "" if row.loss is None else f"{row.loss:.3f}",
            *([f"{row.epochs:.1f}"] if unique else ()),
        ]
        for row in figures.rows
    ]
    lines += ["", *table([*head, *(["epochs"] if unique else ())], rows)]
    if figures.measured_to:
        times = figures.flops / figures.measured_to
        lines.append(f"the fit used points with at most {1 / times:.2g} of these FLOPs")
    return lines + figures.warnings
