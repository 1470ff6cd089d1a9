"""All fits to measured points: Hoffmann et al.'s three approaches, Kaplan's law, and repetition.

Intervals are of 95 %, by bootstrap: points drawn anew with replacement (approach 1: curves;
approach 2: the points of each budget), and fitted again. A draw from which nothing can be fitted
counts nowhere; how many did is in the figures.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
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
    ChinchillaForm,
    Floats,
    Form,
    Kaplan,
    KaplanForm,
    Power,
    Repeats,
)
from train.lab.scaling.laws import fit as fit_law

NEEDED = ("parameters", "tokens", "loss")
REPEATED = 1.001  # epochs above which text is read again
# What is taken for a column that is not there.
OTHERWISE = {
    "flops": lambda row: PER_PAIR * row["parameters"] * row["tokens"],
    "unique_tokens": lambda row: row["tokens"],
    "non_embedding": lambda row: row["parameters"],
}


@dataclass(frozen=True, eq=False)
class Points:
    """[points] each. ``flops`` as counted, else 6ND; ``non_embedding``: Kaplan's N."""

    parameters: Floats
    tokens: Floats
    loss: Floats
    flops: Floats
    unique_tokens: Floats
    non_embedding: Floats

    def __len__(self) -> int:
        return len(self.loss)

    def take(self, index: npt.NDArray[Any]) -> Points:
        """Some of them, by number or mask."""
        return Points(**{name: values[index] for name, values in vars(self).items()})

    @property
    def repeated(self) -> npt.NDArray[np.bool_]:
        """Which read some of their text more than once."""
        return self.tokens > REPEATED * self.unique_tokens


@dataclass(frozen=True, eq=False)
class Curve:
    """The loss of one size along its training: ``flops`` and ``loss`` [steps]."""

    parameters: float
    flops: Floats
    loss: Floats


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a sweep, and its held-out loss."""

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
    """[operations, loss of the training batches] of a size at a budget, of text read once."""

    name: str
    parameters: int
    losses: list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Sweep(Message):
    """sweep.json. ``cores`` of the CPU that it ran on."""

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
    """``points``, and the ``curves`` of their runs; of a table the rows of one size are a curve.
    ``sweep``: that they are of; ``source``: what was read.
    """

    points: Points
    curves: list[Curve]
    sweep: Sweep | None = None
    source: Path = Path()


def points_of(rows: Sequence[Mapping[str, str | float | None]], source: str) -> Points:
    """Raises ``LlmcurateError`` that names the row and what it lacks."""
    columns: dict[str, list[float]] = {name: [] for name in (*NEEDED, *OTHERWISE)}
    for number, row in enumerate(rows, 1):
        values: dict[str, float] = {}
        for name in columns:
            cell = row.get(name)
            if cell in (None, "") and name in OTHERWISE:
                values[name] = OTHERWISE[name](values)
                continue
            try:
                values[name] = float(cell)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                values[name] = np.nan
            if not 0 < values[name] < np.inf:
                what = "nothing" if cell is None else repr(cell)
                raise UsageError(
                    f"{source}: {name} of point {number} is {what}; every point has"
                    f" {', '.join(NEEDED)}, above 0"
                )
        for name, value in values.items():
            columns[name].append(value)
    if len(rows) < 3:
        raise UsageError(f"{source}: a law needs 3 points or more, of several sizes")
    return Points(**{name: np.array(values) for name, values in columns.items()})


def read(path: Path) -> Measured:
    """A folder with sweep.json, such a file, a list of points as JSON, or a CSV file whose first
    line names the columns. Raises ``LlmcurateError``.
    """
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
            raise ValueError("no list of points in it")
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
        raise UsageError(f"{path}: its curves cannot be read") from None
    for size in np.unique(points.parameters) if not curves else ():
        own = points.take(np.flatnonzero(points.parameters == size))
        order = np.argsort(own.flops)
        curves.append(Curve(float(size), own.flops[order], own.loss[order]))
    return Measured(points, curves, sweep, source)


STEPS = 1500  # of operations that the envelope is looked at; Hoffmann et al. 2022, section 3.1
ALIKE = 1.15  # operations of a budget's runs, the most over the least: runs have whole steps


def power(flops: Floats, parameters: Floats) -> Power | None:
    """The power law through best sizes [budgets], by least squares of logarithms; None of a single
    budget.
    """
    if len(np.unique(flops)) < 2:
        return None
    exponent, factor = np.polyfit(np.log(flops), np.log(parameters), 1)
    return Power(float(factor), float(exponent))


def envelope(
    curves: Sequence[Curve], smallest: float, largest: float
) -> tuple[Floats, Floats, Floats]:
    """Approach 1: (operations, size whose curve is lowest there, its loss), of operations that all
    sizes have. Where the smallest or the largest size of all is lowest nothing bounds the best one,
    and it is left out.
    """
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
    losses = np.stack([_along(curve, flops) for curve in curves])
    sizes = np.array([curve.parameters for curve in curves])
    best = losses.argmin(axis=0)
    won, loss = sizes[best], losses.min(axis=0)
    inside = (won > smallest) & (won < largest) & np.isfinite(loss)
    return flops[inside], won[inside], loss[inside]


def _along(curve: Curve, flops: Floats) -> Floats:
    """The loss at these operations; infinite where the curve does not reach."""
    inside = np.interp(
        np.log(flops), np.log(curve.flops), np.log(curve.loss), left=np.inf, right=np.inf
    )
    return np.exp(inside)


@dataclass(frozen=True)
class Parabola:
    """The losses of one budget: loss = ``curve`` in log N (numpy.polyval); ``flops``: their mean.
    ``parameters``, ``loss``: of the minimum, None where there is none between the sizes.
    """

    flops: float
    curve: list[float]
    sizes: list[float]
    losses: list[float]
    parameters: float | None
    loss: float | None


def budgets(points: Points) -> list[npt.NDArray[np.int64]]:
    """The numbers of points that cost about as much, 3 sizes or more: sorted, cut where the next is
    beyond what the first of the group allows.
    """
    groups: list[list[int]] = []
    for number in np.argsort(points.flops, kind="stable"):
        if groups and points.flops[number] <= ALIKE * points.flops[groups[-1][0]]:
            groups[-1].append(int(number))
        else:
            groups.append([int(number)])
    arrays = [np.array(group) for group in groups]
    return [group for group in arrays if len(np.unique(points.parameters[group])) >= 3]


def parabola(points: Points) -> Parabola:
    """Approach 2 at one budget: the parabola through the losses over log N."""
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
    """The best sizes of all budgets as a power law."""
    inside = [each for each in parabolas if each.parameters is not None]
    flops = np.array([each.flops for each in inside])
    return power(flops, np.array([each.parameters for each in inside], float))


Draw = np.random.Generator
RESAMPLES = 400
POINTS = 60  # of the envelope that are kept for a chart
REPEATS = (1e-3, 1e3)  # beyond which an R* says no more
ENVELOPE, ISOFLOP, PARAMETRIC = "1: envelope", "2: IsoFLOP", "3: parametric"


@dataclass(frozen=True)
class Fitted:
    """An approach. Of its power law of the best N the ``log_factor``, the ``exponent`` with its
    interval, and [log factor, exponent] of each resample that gave one; or the ``reason`` why the
    points allow none. ``lowest``: [operations, size, loss] along the envelope; ``parabolas``: one a
    budget. Of a ``law`` its constants and their ``intervals``; ``at_limit``: an exponent is at the
    limit of the fit; ``error``: root of the mean square of log losses; ``predicted``: [loss by the
    law, measured].
    """

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
        """The names that JSON has: of what there is."""
        first = ["log_factor", "exponent", "interval", "resamples"]
        others = ("lowest", "parabolas", "law", "intervals", "at_limit", "error", "predicted")
        there = [name for name in others if getattr(self, name) is not None]
        return (first if self.reason is None else ["reason"]) + there

    @property
    def best(self) -> Power:
        return Power(self.log_factor, self.exponent)

    def interval_at(self, flops: float) -> list[float] | None:
        """Of the best N at ``flops``, from the resamples."""
        if len(self.resamples) < 2:
            return None
        factors, exponents = np.array(self.resamples).T
        logs = factors + exponents * np.log(flops)
        return limits(np.exp(np.clip(logs, -300, 300)))


@dataclass(frozen=True)
class Worth:
    """R_D* and R_N*, from how many points; ``at_limit``: one says no more."""

    tokens: float
    parameters: float
    points: int
    at_limit: bool
    intervals: dict[str, list[float] | None]


@dataclass(frozen=True, kw_only=True)
class Fits(Message):
    """scaling.json; ``flops``: the least and the most of a point."""

    source: str = ""
    seed: int
    resamples: int
    points: int
    flops: tuple[float, float]
    approaches: dict[str, Fitted]
    kaplan: Fitted
    repeats: Worth | None


def fit(measured: Measured, *, seed: int = 0, resamples: int = RESAMPLES) -> Fits:
    """Fit all approaches."""
    once = measured.points.take(~measured.points.repeated)
    again = measured.points.take(measured.points.repeated)
    law, drawn = _parametric(once, ChinchillaForm(), once.parameters, seed, resamples)
    return Fits(
        source=str(measured.source),
        seed=seed,
        resamples=resamples,
        points=len(measured.points),
        flops=(float(measured.points.flops.min()), float(measured.points.flops.max())),
        approaches={
            ENVELOPE: _envelope(measured.curves, seed, resamples),
            ISOFLOP: _isoflop(once, seed, resamples),
            PARAMETRIC: law,
        },
        kaplan=_parametric(once, KaplanForm(), once.non_embedding, seed, resamples)[0],
        repeats=_repeats(again, law.law, drawn[:200], seed),
    )


def limits(values: Any) -> list[float] | None:
    """The interval that holds 95 % of what the resamples gave; None of fewer than 2."""
    if len(values) < 2:
        return None
    low, high = np.quantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return [float(low), float(high)]


def _resampled(
    seed: int, resamples: int, estimate: Callable[[Draw], Power | None]
) -> list[list[float]]:
    """[log factor, exponent] of each resample that gave a power law."""
    draw = np.random.default_rng(seed)
    powers = (estimate(draw) for _ in range(resamples))
    return [[each.log_factor, each.exponent] for each in powers if each is not None]


def _fitted(best: Power, pairs: list[list[float]]) -> Fitted:
    interval = limits([exponent for _, exponent in pairs])
    return Fitted(None, best.log_factor, best.exponent, interval, pairs)


def _envelope(curves: Sequence[Curve], seed: int, resamples: int) -> Fitted:
    curves = [curve for curve in curves if len(curve.loss) > 1]
    sizes = {curve.parameters for curve in curves}
    ends = (min(sizes), max(sizes)) if sizes else (0.0, 0.0)
    flops, won, loss = envelope(curves, *ends)
    every = max(1, len(flops) // POINTS)
    lowest = np.stack([flops, won, loss], axis=1)[::every].tolist()
    if len(set(won.tolist())) < 2:
        reason = (
            "fewer than 2 sizes between the smallest and the largest are the best of any budget"
        )
        return Fitted(reason, lowest=lowest)

    def estimate(draw: Draw) -> Power | None:
        drawn = [curves[number] for number in draw.integers(len(curves), size=len(curves))]
        flops, won, _ = envelope(drawn, *ends)
        return power(flops, won) if len(set(won.tolist())) > 1 else None

    best = power(flops, won)
    assert best is not None
    return replace(_fitted(best, _resampled(seed, resamples, estimate)), lowest=lowest)


def _isoflop(points: Points, seed: int, resamples: int) -> Fitted:
    groups = budgets(points)
    parabolas = [parabola(points.take(group)) for group in groups]
    best = isoflop(parabolas)
    if best is None:
        reason = "fewer than 2 budgets have 3 sizes and the least loss between them"
        return Fitted(reason, parabolas=parabolas)

    def estimate(draw: Draw) -> Power | None:
        drawn = (group[draw.integers(len(group), size=len(group))] for group in groups)
        return isoflop([parabola(points.take(group)) for group in drawn])

    return replace(_fitted(best, _resampled(seed, resamples, estimate)), parabolas=parabolas)


def _parametric(
    points: Points, form: Form, parameters: Floats, seed: int, resamples: int
) -> tuple[Fitted, list[Any]]:
    enough = len(points) > form.count and min(
        len(np.unique(values)) for values in (parameters, points.tokens)
    )
    if enough < 3:
        reason = f"it takes {form.count + 1} points of 3 sizes and 3 numbers of tokens"
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

    pairs = _resampled(seed, resamples, estimate)
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
) -> Worth | None:
    """R_D* and R_N* of points that read text again, at the law of those that do not, and again of
    points drawn anew at each of its ``laws``; R_N* is the published one where no model is larger
    than its text calls for. None of fewer than 3 points.
    """
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
    return Worth(
        tokens=best.tokens,
        parameters=best.parameters,
        points=count,
        at_limit=any(getattr(best, name) in REPEATS for name in names),
        intervals={name: limits([getattr(each, name) for each in drawn]) for name in names},
    )
