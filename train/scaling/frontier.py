"""Best sizes read off the losses themselves: approaches 1 and 2 of Hoffmann et al. 2022."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from train.scaling.laws import Floats, Power
from train.scaling.points import Curve, Points

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
