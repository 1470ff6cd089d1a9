"""Charts of a report: documents by value, curves, yields of thresholds, shares in a square."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from html import escape
from typing import Any

from curate.report.svg import (
    ACCENT,
    FONT,
    GONE,
    GRID,
    INK,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Scale,
    number,
    round_ticks,
    span,
)

Drawing = Callable[..., str]


def drawn(chart: Drawing) -> Drawing:
    """A chart that cannot be drawn is a line of text: it must not cost the run its report."""

    @wraps(chart)
    def safe(*args: Any, **named: Any) -> str:
        try:
            return chart(*args, **named)
        except Exception as error:
            why = escape(f"{type(error).__name__}: {error}"[:200])
            return f"<p class=note>This chart could not be drawn ({why}).</p>"

    return safe


def short(value: float) -> str:
    """A tick's label: 1.2k, 3M, 0.05."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _place(scale: str) -> Scale:
    if scale == "log":
        return lambda v: math.copysign(math.log10(1 + abs(v)), v)
    return lambda v: v


def _x_axis(chart: Chart, edges: Sequence[float], scale: str, open_end: bool) -> None:
    low, high = edges[0], edges[-1]
    if scale == "log":
        decades = [0.0, *(10.0**k for k in range(0, 16))]
        values = [v for v in decades if low <= v <= high]
        if len(values) < 4:
            values = [v for d in decades for v in (d, 3 * d) if low <= v <= high]
        values = sorted(set(values))[:: max(1, math.ceil(len(values) / 7))]
    else:
        whole = len(edges) > 1 and edges[0] % 1 == 0.5
        values = round_ticks(low, high, 6, whole)
    place = _place(scale)
    ticks = [(place(v), short(v)) for v in values]
    if open_end:
        ticks = [*ticks[:-1], (place(high), f"{short(high)} and more")]
    chart.x_axis(ticks, "right" if open_end else "center")


def _root_ticks(most: float) -> list[tuple[float, str]]:
    """Ticks of a square root axis: about 0, 1/10, 1/2 and all of a round number."""
    power = 10.0 ** math.floor(math.log10(most)) if most >= 1 else 1.0
    top = max(m * power for m in (1, 2, 5) if m * power <= max(most, 1))
    values = sorted({0.0, *(v for v in (top / 10, top / 2 if top > 1 else top, top) if v >= 1)})
    return [(math.sqrt(v), short(round(v))) for v in values]


def _stairs(values: Sequence[float], edges: Sequence[float]) -> list[tuple[float, float]]:
    """The outline of bars that stand side by side."""
    points = [(edges[0], 0.0)]
    for value, left, right in zip(values, edges, edges[1:], strict=False):
        points += [(left, value), (right, value)]
    return [*points, (edges[-1], 0.0)]


@drawn
def histogram(
    data: dict[str, Any],
    label: str,
    marked: Sequence[int] = (),
    threshold: float | None = None,
    only_marked: bool = False,
    above: bool | None = None,
    lines: Sequence[tuple[float, str]] = (),
) -> str:
    """Documents by value; those marked in the colour of what goes; the threshold as a line, and
    further lines (where, what is written at it).

    data: bins.Histogram.dump(). The height is the square root of the number, so that a few
    documents beside many can be seen. only_marked: nothing is known of the others. above: on which
    side of the threshold values are marked.
    """
    counts = data["counts"]
    gone = list(counts) if only_marked else list(marked) or [0] * len(counts)
    place = _place(data["scale"])
    edges = [place(e) for e in data["edges"]]
    most = max(counts, default=0)
    chart = Chart(span(edges[0], edges[-1]), (0, math.sqrt(most) * 1.02 if most else 1))
    chart.y_axis(_root_ticks(most))
    stay = [c - g for c, g in zip(counts, gone, strict=True)]
    for values, colour in ((counts, GONE), (stay, ACCENT)):
        if any(values):
            chart.path(_stairs([math.sqrt(max(0, v)) for v in values], edges), colour)
    _x_axis(chart, data["edges"], data["scale"], data.get("open", False))
    # Between two whole numbers, where the threshold itself is on the side that stays.
    shift = (0.5 if above else -0.5) if data["edges"][0] % 1 == 0.5 and above is not None else 0
    marks = [(place(v), what, "center") for v, what in lines]
    if len(lines) == 2:  # may stand close together
        marks = [(*marks[0][:2], "right"), (*marks[1][:2], "left")]
    if threshold is not None:
        marks.append((place(threshold + shift), f"limit {short(threshold)}", "center"))
    for at, what, side in marks:
        if edges[0] <= at <= edges[-1]:
            chart.mark(at, what, side)
    return chart.svg(label)


@drawn
def curve(
    lines: Sequence[Sequence[tuple[float, float]]],
    label: str,
    x_name: str,
    doublings: Sequence[int] = (),
) -> str:
    """One or two lines of (x, y): the first in the accent colour, the second as dots and dashes.

    doublings: the ticks of an x axis on which a doubling is as far everywhere.
    """
    place: Scale = math.log2 if doublings else lambda v: v
    finite = [
        [(place(x), y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for points in lines
    ]
    xs = [x for points in finite for x, _ in points] + [place(tick) for tick in doublings]
    ys = [y for points in finite for _, y in points]
    x, y = span(min(xs), max(xs), 0.02), span(min(ys), max(ys), 0.12)
    chart = Chart(x, y, height=200)
    chart.y_axis([(v, short(v)) for v in round_ticks(*y, 5)])
    ticks = [(place(t), f"{t:,}") for t in doublings]
    chart.x_axis(ticks or [(v, short(v)) for v in round_ticks(*x, 5)])
    for points, colour, dashes in zip(
        finite, (ACCENT, INK), ("", ' stroke-dasharray="5 2.5"'), strict=False
    ):
        if points:
            chart.path(points, colour, 1.4, dashes)
        for at, value in points if dashes else ():
            chart.add("circle", colour, cx=chart.across(at), cy=chart.down(value), r=2.2)
    chart.text(WIDTH - RIGHT, TOP - 6, x_name, side="right")
    return chart.svg(label)


@drawn
def yields(
    points: Sequence[tuple[float, float, float]],
    scale: str,
    label: str,
    marks: Sequence[tuple[float, str]],
) -> str:
    """What is kept at thresholds: (threshold, surely, at most), and lines at chosen thresholds."""
    place = _place(scale)
    low, high = points[0][0], points[-1][0]
    end = place(high) if high > low else place(low) + 1
    top = max(1.0, max(m for _, _, m in points) * 1.08)
    chart = Chart((place(low), end), (0, top))
    chart.y_axis([(v, short(v)) for v in round_ticks(0, top, 4, whole=True)])
    sure = [(place(t), s) for t, s, _ in points]
    chart.path([*sure, *((place(t), m) for t, _, m in reversed(points))], GONE)
    chart.path(sure, ACCENT, 1.6)
    _x_axis(chart, [low, high], scale, False)
    inside = sorted((at, what) for at, what in marks if low <= at <= high)
    for nth, (at, what) in enumerate(inside):
        # Two may stand close together.
        side = "center" if len(inside) != 2 else "left" if nth else "right"
        chart.mark(place(at), what, side)
    return chart.svg(label)


@drawn
def heat(labels: Sequence[str], cells: dict[tuple[str, str], float], label: str) -> str:
    """A square of shares: (row, column) -> 0 to 1, the darker the more; both sides are `labels`."""
    size = 12.0  # of a cell
    side, edge = size * (len(labels) + 1), size * max(4, 0.6 * max(map(len, labels))) + 4
    whole = side + edge
    places = {name: i for i, name in enumerate(labels)}
    chart = Chart(
        (-0.5, len(labels) - 0.5), (len(labels) - 0.5, -0.5), whole, whole, (edge, 0, edge, 0)
    )
    inner = side / len(labels)
    for (a, b), share in sorted(cells.items(), key=lambda c: (places[c[0][0]], places[c[0][1]])):
        if share > 0:
            # A root, so that a few texts beside many can be seen.
            dark = round(math.sqrt(min(1.0, share)), 3)
            faint = {"fill_opacity": f"{dark:g}"} if dark < 1 else {}
            x, y = edge + places[b] * inner, edge + places[a] * inner
            chart.add("rect", ACCENT, x=x, y=y, width=inner, height=inner, **faint)
    chart.add(
        "rect", x=edge, y=edge, width=side, height=side,
        fill="none", stroke=f"var(--{GRID})", stroke_width=0.8,
    )  # fmt: skip
    for i, name in enumerate(labels):
        middle = edge + (i + 0.5) * inner + FONT * 0.35
        chart.text(edge - 3, middle, name, side="right")
        turned = f"rotate(-90 {number(middle)} {number(edge - 3)})"
        chart.text(middle, edge - 3, name, side="left", transform=turned)
    return chart.svg(label)
