"""Fits of scaling laws: Hoffmann et al.'s three approaches, Kaplan's law, and repeated text.

Intervals are 95 % bootstrap intervals from resampled points. Approach 1 resamples curves instead,
and approach 2 resamples within each budget. Resamples that cannot be fitted are left out."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llmcurate.base.errors import UsageError
from llmcurate.base.messages import Message
from train.evaluate.paired import SHARE
from train.lab.scaling.laws import (
    DELTA,
    LIMITS,
    PER_PAIR,
    Chinchilla,
    Floats,
    Kaplan,
    Law,
    Power,
    Repeats,
)
from train.lab.scaling.laws import fit as fit_law

NEEDED = ("parameters", "tokens", "loss")
REPEATED = 1.001  # epochs above which text counts as repeated
# Defaults of missing columns.
DEFAULTS = {
    "flops": lambda row: PER_PAIR * row["parameters"] * row["tokens"],
    "unique_tokens": lambda row: row["tokens"],
    "non_embedding": lambda row: row["parameters"],
}


@dataclass(frozen=True, eq=False)
class Points:
    """Trained models as points to fit, in arrays [points]. ``loss``: nats per token. ``flops``: by
    default 6 x parameters x tokens. ``non_embedding``: parameters without embeddings (Kaplan)."""

    parameters: Floats
    tokens: Floats
    loss: Floats
    flops: Floats
    unique_tokens: Floats
    non_embedding: Floats

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, index: npt.NDArray[Any]) -> Points:
        return Points(**{name: values[index] for name, values in vars(self).items()})

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """True for each point whose training read text more than once."""
        return self.tokens > REPEATED * self.unique_tokens


@dataclass(frozen=True, eq=False)
class Curve:
    """The ``loss`` of one model size after ``flops`` operations of training: arrays [steps]."""

    parameters: float
    flops: Floats
    loss: Floats


@dataclass(frozen=True, kw_only=True)
class Run:
    name: str
    parameters: int
    non_embedding: int
    tokens: int
    flops: float
    loss: float
    seed: int
    seconds: float
    epochs: float
    unique_tokens: int


@dataclass(frozen=True)
class SizeCurve:
    """The training loss of one model size at one budget, the mean of its runs. ``losses``: pairs
    (operations so far, loss) during training."""

    name: str
    parameters: int
    losses: list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Sweep(Message):
    """The contents of sweep.json. ``cores``: the number of CPU cores that the sweep ran on."""

    shards: str
    seeds: list[int]
    train: dict[str, Any]
    device: str
    seconds: float
    points: list[Run]
    curves: list[SizeCurve]
    cores: int


@dataclass(frozen=True, eq=False)
class Measured:
    """Trained models as points to fit, and their loss curves. If the file of the points has no loss
    curves, the points of each model size are joined into a curve."""

    points: Points
    curves: list[Curve]
    sweep: Sweep | None = None
    source: Path = Path()


def points_of(rows: Sequence[Mapping[str, str | float | None]], source: str) -> Points:
    """Convert table rows to points. An ``LlmcurateError`` names the wrong row and value."""
    columns: dict[str, list[float]] = {name: [] for name in (*NEEDED, *DEFAULTS)}
    for number, row in enumerate(rows, 1):
        values: dict[str, float] = {}
        for name in columns:
            cell = row.get(name)
            if cell in (None, "") and name in DEFAULTS:
                values[name] = DEFAULTS[name](values)
                continue
            try:
                values[name] = float(cell)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                values[name] = np.nan
            if not 0 < values[name] < np.inf:
                shown = "missing" if cell is None else repr(cell)
                raise UsageError(
                    f"{source}: {name} of point {number} is {shown}; every point needs"
                    f" {', '.join(NEEDED)}, all above 0"
                )
        for name, value in values.items():
            columns[name].append(value)
    if len(rows) < 3:
        raise UsageError(f"{source}: a law needs at least 3 points with different sizes")
    return Points(**{name: np.array(values) for name, values in columns.items()})


def read(path: Path) -> Measured:
    """Read points from sweep.json (or its folder), JSON or CSV. Raises ``LlmcurateError``."""
    source, path = path, path / "sweep.json" if path.is_dir() else path
    sweep: Sweep | None = None
    curves_of: Sequence[Any] = ()
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".csv":
            rows = list(csv.DictReader(text.splitlines()))
        else:
            rows = json.loads(text)
            if isinstance(rows, dict) and rows:
                curves_of = rows.get("curves", ())
                sweep = Sweep.from_json(text) if "cores" in rows else None
                rows = rows.get("points", ())
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("it has no list of points")
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    points = points_of(rows, str(path))
    try:
        curves = [
            Curve(float(curve["parameters"]), *np.array(curve["losses"], float).T)
            for curve in curves_of
        ]
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f"{path}: its curves cannot be read: each needs parameters and losses"
        ) from None
    for size in np.unique(points.parameters) if not curves else ():
        own = points.take(np.flatnonzero(points.parameters == size))
        order = np.argsort(own.flops)
        curves.append(Curve(float(size), own.flops[order], own.loss[order]))
    return Measured(points, curves, sweep, source)


STEPS = 1500  # points of the envelope; Hoffmann et al. 2022, section 3.1
ALIKE = 1.15  # largest ratio of operations within a budget; runs round to whole steps


def power(flops: Floats, parameters: Floats) -> Power | None:
    """Fit a power law (a line through logarithms) to the best sizes for several budgets. Return
    None for fewer than two budgets."""
    if len(np.unique(flops)) < 2:
        return None
    exponent, factor = np.polyfit(np.log(flops), np.log(parameters), 1)
    return Power(float(factor), float(exponent))


def envelope(
    curves: Sequence[Curve], smallest: float, largest: float
) -> tuple[Floats, Floats, Floats]:
    """Return (budgets in operations, best sizes, losses): the model size with the least loss at
    each budget, and this loss (Hoffmann et al. 2022, approach 1). Budgets with the ``smallest`` or
    the ``largest`` size as the best are left out: an even smaller or larger size may be better."""
    ends: dict[float, tuple[float, float]] = {}
    for curve in curves:
        first, last = ends.get(curve.parameters, (np.inf, 0.0))
        span = min(first, curve.flops[0]), max(last, curve.flops[-1])
        ends[curve.parameters] = span
    low = max((first for first, _ in ends.values()), default=1.0)
    high = min((last for _, last in ends.values()), default=0.0)
    if low >= high:
        return (np.empty(0),) * 3
    flops = np.geomspace(low, high, STEPS)
    logs = [
        np.interp(np.log(flops), np.log(each.flops), np.log(each.loss), left=np.inf, right=np.inf)
        for each in curves
    ]
    losses = np.exp(np.stack(logs))
    sizes = np.array([curve.parameters for curve in curves])
    best = losses.argmin(axis=0)
    best_sizes, loss = sizes[best], losses.min(axis=0)
    inside = (best_sizes > smallest) & (best_sizes < largest) & np.isfinite(loss)
    return flops[inside], best_sizes[inside], loss[inside]


@dataclass(frozen=True)
class Parabola:
    """Parabola fitted to the losses of one budget: loss = numpy.polyval(``curve``, log N) for N
    parameters. ``flops``: geometric mean of the runs' operations. ``parameters`` and ``loss`` are
    the parabola's minimum, or None if the minimum is outside the range of trained sizes."""

    flops: float
    curve: list[float]
    sizes: list[float]
    losses: list[float]
    parameters: float | None
    loss: float | None


def budgets(points: Points) -> list[npt.NDArray[np.int64]]:
    """Group points of similar cost: operations in a group differ by a factor of ``ALIKE`` at most.
    Return the indices of each group's points, for groups with at least 3 sizes."""
    groups: list[list[int]] = []
    for number in np.argsort(points.flops, kind="stable"):
        if groups and points.flops[number] <= ALIKE * points.flops[groups[-1][0]]:
            groups[-1].append(int(number))
        else:
            groups.append([int(number)])
    arrays = [np.array(group) for group in groups]
    return [group for group in arrays if len(np.unique(points.parameters[group])) >= 3]


def parabola(points: Points) -> Parabola:
    """Fit a parabola in log N to the losses for one budget (Hoffmann et al. 2022, approach 2)."""
    x = np.log(points.parameters)
    curve = np.polyfit(x, points.loss, 2) if len(np.unique(x)) >= 3 else np.zeros(3)
    size = loss = None
    if curve[0] > 0:
        at = -curve[1] / (2 * curve[0])
        if x.min() <= at <= x.max():
            size, loss = float(np.exp(at)), float(np.polyval(curve, at))
    return Parabola(
        flops=float(np.exp(np.log(points.flops).mean())),
        curve=curve.tolist(),
        sizes=points.parameters.tolist(),
        losses=points.loss.tolist(),
        parameters=size,
        loss=loss,
    )


def isoflop(parabolas: Sequence[Parabola]) -> Power | None:
    inside = [each for each in parabolas if each.parameters is not None]
    flops = np.array([each.flops for each in inside])
    return power(flops, np.array([each.parameters for each in inside], float))


Draw = np.random.Generator
Rounds = Callable[[], Iterator[None]]  # an item per resample
RESAMPLES = 400
POINTS = 60  # of the envelope in the chart
REPEATS = (1e-3, 1e3)  # limits of a fitted R*
ENVELOPE, ISOFLOP, PARAMETRIC = "1: envelope", "2: IsoFLOP", "3: parametric"


@dataclass(frozen=True)
class Fitted:
    """The result of a fit, or the ``reason`` why there is no fit. The best number of parameters for
    a budget of C operations is exp(``log_factor``) x C^``exponent``. ``interval``: the exponent's.
    ``resamples``: [log_factor, exponent] of each resample. ``lowest``: [operations, size, loss] of
    the best size at each of several budgets (Hoffmann et al., approach 1). ``parabolas``: one per
    budget (approach 2). ``law``: the constants by name, with their ``intervals``. ``at_limit``:
    True if an exponent is at the limit of the fit. ``error``: the RMS error of log losses.
    ``predicted``: [predicted, measured] losses of points."""

    reason: str | None = None
    log_factor: float = 0.0
    exponent: float = 0.0
    interval: list[float] | None = None
    resamples: list[list[float]] = field(default_factory=list)
    lowest: list[list[float]] | None = None
    parabolas: list[Parabola] | None = None
    law: dict[str, float] | None = None
    intervals: dict[str, list[float] | None] | None = None
    at_limit: bool | None = None
    error: float | None = None
    predicted: list[list[float]] | None = None

    @property
    def JSON(self) -> list[str]:
        """The names of the fields to write to JSON: those that have values."""
        first = ["log_factor", "exponent", "interval", "resamples"]
        others = ("lowest", "parabolas", "law", "intervals", "at_limit", "error", "predicted")
        filled = [name for name in others if getattr(self, name) is not None]
        return (first if self.reason is None else ["reason"]) + filled

    @property
    def best(self) -> Power:
        return Power(self.log_factor, self.exponent)

    def interval_at(self, flops: float) -> list[float] | None:
        """Return the 95 % interval of the best N for a budget ``flops``, from the resamples."""
        if len(self.resamples) < 2:
            return None
        factors, exponents = np.array(self.resamples).T
        logs = factors + exponents * np.log(flops)
        return limits(np.exp(np.clip(logs, -300, 300)))


@dataclass(frozen=True)
class RepeatValues:
    """Fitted constants of the law ``Repeats``: R_D* (``tokens``) and R_N* (``parameters``).
    ``at_limit``: True if one of the two is at the limit of the fit."""

    tokens: float
    parameters: float
    points: int
    at_limit: bool
    intervals: dict[str, list[float] | None]


@dataclass(frozen=True, kw_only=True)
class Fits(Message):
    """The contents of scaling.json. ``flops``: least and most operations of a training run."""

    source: str = ""
    seed: int
    resamples: int
    points: int
    flops: tuple[float, float]
    approaches: dict[str, Fitted]
    kaplan: Fitted
    repeats: RepeatValues | None


def fit(
    measured: Measured,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    on_resample: Callable[[], None] = lambda: None,
) -> Fits:
    """Fit all approaches. ``on_resample`` is called before each resample of each approach."""

    def rounds() -> Iterator[None]:
        for _ in range(resamples):
            on_resample()
            yield

    once = measured.points.take(~measured.points.repeated)
    again = measured.points.take(measured.points.repeated)
    law, drawn = _parametric(once, Chinchilla, once.parameters, seed, rounds)
    return Fits(
        source=str(measured.source),
        seed=seed,
        resamples=resamples,
        points=len(measured.points),
        flops=(float(measured.points.flops.min()), float(measured.points.flops.max())),
        approaches={
            ENVELOPE: _envelope(measured.curves, seed, rounds),
            ISOFLOP: _isoflop(once, seed, rounds),
            PARAMETRIC: law,
        },
        kaplan=_parametric(once, Kaplan, once.non_embedding, seed, rounds)[0],
        repeats=_repeats(again, law.law, drawn[:200], seed),
    )


def limits(values: Any) -> list[float] | None:
    """Return the 95 % interval of resampled values, or None for fewer than two."""
    if len(values) < 2:
        return None
    low, high = np.quantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return [float(low), float(high)]


def _resampled(
    seed: int, rounds: Rounds, estimate: Callable[[Draw], Power | None]
) -> list[list[float]]:
    draw = np.random.default_rng(seed)
    powers = (estimate(draw) for _ in rounds())
    return [[each.log_factor, each.exponent] for each in powers if each is not None]


def _fitted(best: Power, pairs: list[list[float]]) -> Fitted:
    interval = limits([exponent for _, exponent in pairs])
    return Fitted(None, best.log_factor, best.exponent, interval, pairs)


def _envelope(curves: Sequence[Curve], seed: int, rounds: Rounds) -> Fitted:
    curves = [curve for curve in curves if len(curve.loss) > 1]
    all_sizes = {curve.parameters for curve in curves}
    ends = (min(all_sizes), max(all_sizes)) if all_sizes else (0.0, 0.0)
    flops, sizes, loss = envelope(curves, *ends)
    every = max(1, len(flops) // POINTS)
    lowest = np.stack([flops, sizes, loss], axis=1)[::every].tolist()
    if len(set(sizes.tolist())) < 2:
        reason = "fewer than 2 sizes, except the smallest and the largest, are best for a budget"
        return Fitted(reason, lowest=lowest)

    def estimate(draw: Draw) -> Power | None:
        drawn = [curves[number] for number in draw.integers(len(curves), size=len(curves))]
        flops, sizes, _ = envelope(drawn, *ends)
        return power(flops, sizes) if len(set(sizes.tolist())) > 1 else None

    best = power(flops, sizes)
    assert best is not None
    return replace(_fitted(best, _resampled(seed, rounds, estimate)), lowest=lowest)


def _isoflop(points: Points, seed: int, rounds: Rounds) -> Fitted:
    groups = budgets(points)
    parabolas = [parabola(points.take(group)) for group in groups]
    best = isoflop(parabolas)
    if best is None:
        reason = "fewer than 2 budgets have 3 sizes and a minimum of the loss between these sizes"
        return Fitted(reason, parabolas=parabolas)

    def estimate(draw: Draw) -> Power | None:
        drawn = (group[draw.integers(len(group), size=len(group))] for group in groups)
        return isoflop([parabola(points.take(group)) for group in drawn])

    return replace(_fitted(best, _resampled(seed, rounds, estimate)), parabolas=parabolas)


def _parametric(
    points: Points, form: Law, parameters: Floats, seed: int, rounds: Rounds
) -> tuple[Fitted, list[Any]]:
    enough = len(points) > form.count and min(
        len(np.unique(values)) for values in (parameters, points.tokens)
    )
    if enough < 3:
        reason = f"at least {form.count + 1} points of 3 sizes and 3 token counts are needed"
        return Fitted(reason), []
    law, constants = fit_law(form, parameters, points.tokens, points.loss)
    laws: list[Chinchilla | Kaplan] = []

    def estimate(draw: Draw) -> Power | None:
        drawn = draw.integers(len(points), size=len(points))
        if min(len(np.unique(values[drawn])) for values in (parameters, points.tokens)) < 3:
            return None
        of_draw = (parameters[drawn], points.tokens[drawn], points.loss[drawn])
        laws.append(fit_law(form, *of_draw, start=constants)[0])
        best: Power = laws[-1].best
        return best

    pairs = _resampled(seed, rounds, estimate)
    predicted = law.loss(parameters, points.tokens)
    fitted = replace(
        _fitted(law.best, pairs),
        law=vars(law),
        intervals={name: limits([getattr(each, name) for each in laws]) for name in vars(law)},
        at_limit=bool(np.isclose(constants[-2:, None], LIMITS).any()),
        error=float(np.sqrt(np.mean(np.log(points.loss / predicted) ** 2))),
        predicted=np.stack([predicted, points.loss], axis=1).tolist(),
    )
    return fitted, laws


def _repeats(
    points: Points, law: dict[str, float] | None, laws: Sequence[Chinchilla], seed: int
) -> RepeatValues | None:
    """Fit R_D* and R_N*, the constants of ``Repeats``, to at least 3 points with repeated text.
    R_N* is fitted only if a model is too large for its text. ``law`` is Chinchilla's law, fitted to
    points without repeated text; ``laws`` are fits to resamples of those points. For the intervals,
    R_D* and R_N* are fitted again with each of ``laws``, to a new resample of ``points``."""
    if len(points) < 3 or law is None:
        return None
    base = Chinchilla(**law)
    excess = bool((points.parameters > base.parameters_for(points.unique_tokens)).any())

    def nearest(taken: npt.NDArray[Any], base: Chinchilla) -> Repeats:
        from scipy.optimize import minimize

        own = points.take(taken)
        count = 2 if excess else 1

        def repeats(logs: Floats) -> Repeats:
            values = np.clip(np.exp(np.clip(logs, -99, 99)), *REPEATS).tolist()
            return Repeats(**dict(zip(("tokens", "parameters"), values, strict=False)))

        def total(logs: Floats) -> float:
            losses = repeats(logs).loss(base, own.parameters, own.tokens, own.unique_tokens)
            size = np.abs(np.log(losses / own.loss)) / DELTA
            return float(np.where(size <= 1, size**2 / 2, size - 0.5).sum())

        begin = np.log([Repeats.tokens, Repeats.parameters][:count])
        return repeats(minimize(total, begin, method="Nelder-Mead", tol=1e-4).x)

    draw = np.random.default_rng(seed)
    count = len(points)
    drawn = [nearest(draw.integers(count, size=count), each) for each in laws]
    names = ("tokens", "parameters") if excess else ("tokens",)
    best = nearest(np.arange(count), base)
    return RepeatValues(
        tokens=best.tokens,
        parameters=best.parameters,
        points=count,
        at_limit=any(getattr(best, name) in REPEATS for name in names),
        intervals={name: limits([getattr(each, name) for each in drawn]) for name in names},
    )
