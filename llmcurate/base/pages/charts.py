"""Charts as inline SVG, with the page's CSS variables as colours. Equal data give equal bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llmcurate.base.disk.units import format_power, format_short
from llmcurate.base.messages import json_values

if TYPE_CHECKING:
    from markupsafe import Markup


WIDTH, HEIGHT = 340, 140  # of a chart, in CSS pixels; drawn at this size or smaller
SPARK = (120, 24)  # of a sparkline
FONT = 11
LETTER = 0.6 * FONT  # approximate width of a letter
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 20, 24  # margins around the axes
INK, MUTED, ACCENT, GONE, GRID = (f"var(--{name})" for name in "ink muted accent gone line".split())
COLOURS = tuple(f"var(--s{nth})" for nth in range(4))  # of series: Okabe and Ito's
Point = tuple[float, float]
Points = Iterable[Point]


def px(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text_width(text: str) -> float:
    return len(text) * LETTER


def svg_text(x: float, y: float, text: str, anchor: str = "middle", colour: str = MUTED) -> str:
    place = f'x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text, quote=False)}</text>"


def svg(parts: Iterable[str], label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    view = f'viewBox="0 0 {px(width)} {px(height)}" font-size="{FONT}"'
    return f'<svg {view} role=img aria-label="{escape(label)}">{"".join(parts)}</svg>'


class Axes:
    """The axes of a chart, with the chart's SVG elements in `parts`. The x axis goes from `low` to
    `high`, the y axis from `bottom` to `top`. `ys` lists the horizontal grid lines as (value,
    label). The longest of these labels sets the left margin."""

    def __init__(
        self,
        low: float,
        high: float,
        top: float,
        ys: Sequence[tuple[float, str]],
        bottom: float = 0.0,
        height: int = HEIGHT,
    ) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self.bottom, self.top = bottom, top if top > bottom else bottom + 1
        self.base = height - BOTTOM
        self.ys = ys
        self.left = max([LEFT, *(text_width(name) + 6 for _, name in ys)])
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.left + share * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return self.base - share * (self.base - TOP)

    def path(self, points: Points, style: str, close: bool = False) -> None:
        steps = "L".join(f"{px(self.x(x))} {px(self.y(y))}" for x, y in points)
        self.parts.append(f'<path d="M{steps}{"Z" if close else ""}" {style}/>')

    def ticks(self, xs: Sequence[tuple[float, str]]) -> None:
        """Draw the labels of both axes, and horizontal grid lines. Where labels of the x axis would
        touch each other, only the one further to the right is drawn."""
        for at, name in self.ys:
            y = self.y(at)
            self.line(f"M{px(self.left)} {px(y)}H{WIDTH - RIGHT}", GRID, 1.1)
            self.parts.append(svg_text(self.left - 4, y + FONT / 3, name, "end"))
        free = float(WIDTH)  # the leftmost x of the labels drawn so far
        for at, name in reversed(xs):
            wide = text_width(name)
            middle = min(self.x(at), WIDTH - wide / 2)  # further right it would be cut off
            if middle + wide / 2 <= free:
                self.parts.append(svg_text(middle, self.base + FONT + 4, name))
                free = middle - wide / 2 - LETTER

    def name(self, name: str, y: float, style: str, dot: str = "") -> None:
        """Draw an entry of the legend: a line, or a dot if `dot` is its colour, then the name."""
        if dot:
            self.dot(self.left + 14, y - 4, dot)
        else:
            self.parts.append(f'<path d="M{px(self.left)} {px(y - 4)}h28" {style}/>')
        self.parts.append(svg_text(self.left + 34, y, name, "start", INK))

    def dot(self, x: float, y: float, colour: str, radius: float = 2.6) -> None:
        self.parts.append(f'<circle cx="{px(x)}" cy="{px(y)}" r="{radius}" fill="{colour}"/>')

    def least(self, x: float, y: float) -> None:
        """Draw a ring around the lowest point of a line, and write the point's value."""
        place = f'cx="{px(self.x(x))}" cy="{px(self.y(y))}" r="5"'
        self.parts.append(f'<circle {place} fill="none" stroke="{INK}" stroke-width="1.5"/>')
        anchor = "end" if self.x(x) > WIDTH / 2 else "start"
        text = f"lowest {y:.3g} at {format_short(x)}"
        self.parts.append(svg_text(self.x(x), self.y(y) - 9, text, anchor, INK))

    def line(self, path: str, colour: str, width: float) -> None:
        self.parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="{width}"/>')

    def axis(self) -> None:
        self.line(f"M{px(self.left)} {self.base}H{WIDTH - RIGHT}", MUTED, 1.1)

    def x_name(self, name: str) -> None:
        middle = (self.left + WIDTH - RIGHT) / 2
        self.parts.append(svg_text(middle, self.base + BOTTOM + FONT, name))

    def marks(self, marks: Iterable[tuple[float, str]]) -> None:
        """Draw vertical lines with a name above each. If there are two lines, which may be close
        together, the name of the first is on its left and that of the second on its right."""
        inside = [(at, name) for at, name in marks if self.low <= at <= self.high]
        for nth, (at, name) in enumerate(inside):
            x = self.x(at)
            share = (at - self.low) / (self.high - self.low)
            anchor = "start" if share < 0.15 else "end" if share > 0.85 else "middle"
            if len(inside) == 2 and (anchor == "middle" or nth == 0):
                anchor = "start" if nth or text_width(name) > x else "end"
            self.line(f"M{px(x)} {self.base}V{TOP}", INK, 1.7)
            self.parts.append(svg_text(x, TOP - 4, name, anchor, INK))


def round_values(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Return the multiples of a round step (1, 2, 2.5 or 5 times a power of ten) from low to high.
    The step is the smallest that gives at most `most` + 1 values, and a whole number if `whole`."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [s * power for s in (1, 2, 2.5, 5, 10) if not whole or (s * power) % 1 == 0]
    step = next((s for s in steps if (high - low) / s <= most), 1.0 if whole else 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def scaling(scale: str) -> Callable[[float], float]:
    """Return the function that scales values for an axis. For `log` it returns sign(value) x
    log10(1 + |value|), otherwise the value itself."""
    if scale == "log":
        return lambda v: math.copysign(math.log10(1 + abs(v)), v)
    return lambda v: v


def x_ticks(low: float, high: float, scale: str, whole: bool = False) -> list[float]:
    if scale != "log":
        return round_values(low, high, 6, whole)
    decades = [0.0, *(10.0**k for k in range(0, 16))]
    values = [v for v in decades if low <= v <= high]
    if len(values) < 4:
        values = [v for d in decades for v in (d, 3 * d) if low <= v <= high]
    return sorted(set(values))[:: math.ceil(len(values) / 7)]


def root_ticks(most: float) -> list[tuple[float, str]]:
    """Return ticks, as (square root of a value, label), for an axis of square roots up to `most`.
    The values are 0, a round number near `most`, and 0.1 and 0.5 times this number."""
    power = 10.0 ** math.floor(math.log10(most)) if most >= 1 else 1.0
    top = max(m * power for m in (1, 2, 5) if m * power <= max(most, 1))
    values = sorted({0.0, *(v for v in (top / 10, top / 2 if top > 1 else top, top) if v >= 1)})
    return [(math.sqrt(v), format_short(round(v))) for v in values]


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks from low to high for a logarithmic axis: 1, 2 and 5 times powers of ten. If
    these are more than 7, return at most 7 powers of ten instead."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    if len(fine) <= 7:
        return fine
    decades = [v for v in fine if v in {10.0**k for k in powers}]
    return decades[:: math.ceil(len(decades) / 7)]


Chart = Callable[..., str]


def drawn(chart: Chart) -> Chart:
    """Decorate a chart function: if it raises an error, a line of text replaces the chart."""

    @wraps(chart)
    def safe(*args: Any, **named: Any) -> Markup:
        from markupsafe import Markup

        try:
            return Markup(chart(*args, **named))
        except Exception as error:
            reason = escape(f"{type(error).__name__}: {error}"[:200])
            return Markup(f"<p class=note>This chart could not be drawn ({reason}).</p>")

    return safe


@drawn
def histogram(
    record: Any,
    label: str,
    threshold: float | None = None,
    only_marked: bool = False,
    above: bool | None = None,
    lines: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw a histogram of documents by value, with the threshold and further vertical `lines`
    (value, label). `record` is a histogram or its JSON values. Documents that a rule marked have
    the colour of removed ones. The height of a bar is the square root of its number of documents,
    so that small bars beside large ones can be seen. `only_marked`: all documents are marked.
    `above`: True if a rule marks values above the threshold, False if it marks values below."""
    data = json_values(record)
    counts, edges = data["counts"], data["edges"]
    scaled = scaling(data["scale"])
    most = max(counts, default=0)
    top = math.sqrt(most) * 1.02 if most else 1.0
    axes = Axes(scaled(edges[0]), scaled(edges[-1]), top, root_ticks(most))
    whole = len(edges) > 1 and edges[0] % 1 == 0.5  # a bin for each whole number
    values = x_ticks(edges[0], edges[-1], data["scale"], whole)
    xs = [(scaled(v), format_short(v)) for v in values]
    if data.get("open", False):
        xs[-1] = (axes.high, f"{format_short(edges[-1])} and more")
    axes.ticks(xs)
    for outline, colour in zip(_outlines(data, only_marked), (GONE, ACCENT), strict=True):
        if any(height for _, height in outline):
            axes.path(outline, f'fill="{colour}"', close=True)
    axes.axis()
    marks = [(scaled(v), name) for v, name in lines]
    if threshold is not None:
        at = scaled(_between(data, threshold, above))
        marks.append((at, f"limit {format_short(threshold)}"))
    axes.marks(marks)
    return svg(axes.parts, label)


def _outlines(data: dict[str, Any], only_marked: bool) -> list[list[Point]]:
    counts, edges = data["counts"], [scaling(data["scale"])(edge) for edge in data["edges"]]
    removed = counts if only_marked else data.get("marked") or [0] * len(counts)
    outlines = []
    for heights in (counts, [c - r for c, r in zip(counts, removed, strict=True)]):
        roots = [math.sqrt(max(0, v)) for v in heights]
        sides = zip(roots, pairwise(edges), strict=True)
        steps = [(edge, root) for root, both in sides for edge in both]
        outlines.append([(edges[0], 0.0), *steps, (edges[-1], 0.0)])
    return outlines


def _between(data: dict[str, Any], threshold: float, above: bool | None) -> float:
    """Return the x at which to draw the threshold's line. For whole numbers this is 0.5 beside the
    threshold, so that the threshold's own bar is on the kept side."""
    whole = len(data["edges"]) > 1 and data["edges"][0] % 1 == 0.5
    return threshold + ((0.5 if above else -0.5) if whole and above is not None else 0)


@drawn
def sparkline(shapes: Sequence[Sequence[Point]], label: str, mark: float | None = None) -> str:
    """Draw one or two filled outlines of (x, y) without axes, for a row of a table. The last
    outline has the accent colour, the other the colour of removed documents. `mark` is the x of a
    vertical line."""
    xs, ys = ([at[axis] for shape in shapes for at in shape] for axis in (0, 1))
    wide, high = SPARK
    low, span, most = min(xs), max(xs) - min(xs) or 1, max(ys) or 1
    parts = []
    for shape, colour in zip(shapes, (GONE, ACCENT)[-len(shapes) :], strict=True):
        steps = (f"{px((x - low) / span * wide)} {px(high - y / most * high)}" for x, y in shape)
        parts.append(f'<path d="M{"L".join(steps)}Z" fill="{colour}"/>')
    if mark is not None and low <= mark <= low + span:
        at = px((mark - low) / span * wide)
        parts.append(f'<path d="M{at} {high}V0" stroke="{INK}" stroke-width="1.5"/>')
    return svg(parts, label, *SPARK)


@drawn
def value_sparkline(
    record: Any,
    label: str,
    threshold: float | None = None,
    only_marked: bool = False,
    above: bool | None = None,
) -> str:
    """Draw a histogram as a sparkline. The parameters are those of `histogram`."""
    data = json_values(record)
    at = None if threshold is None else _between(data, threshold, above)
    mark = None if at is None else scaling(data["scale"])(at)
    return str(sparkline(_outlines(data, only_marked), label, mark))


@drawn
def curve(
    lines: Sequence[Iterable[tuple[float, float]]],
    label: str,
    x_name: str,
    doublings: Sequence[int] = (),
    x_range: tuple[float, float] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    y_name: str = "",
) -> str:
    """Draw one or two lines of (x, y): the first in the accent colour, the second as dots and
    dashes.

    Points that are not finite are left out. `doublings` are the ticks of a logarithmic x axis. The
    x axis covers at least `x_range`, so that charts beside each other can be compared. `marks` are
    vertical lines (x, name). If `y_name` is given, it is the title of the y axis, and the lowest
    (best) point of the last line is marked.
    """
    height = 200
    scaled: Callable[[float], float] = math.log2 if doublings else lambda v: v
    points = [[(scaled(x), y) for x, y in line if math.isfinite(y)] for line in lines]
    xs, ys = [x for line in points for x, _ in line], [y for line in points for _, y in line]
    if not ys:
        raise ValueError("no point to draw")
    xs += map(scaled, x_range or ())
    wide, high = (max(xs) - min(xs)) * 0.02, (max(ys) - min(ys)) * 0.12 or abs(ys[0]) * 0.05
    low, top = min(ys) - high, max(ys) + high
    heights = [(v, f"{v:.6g}") for v in round_values(low, top, 5)]
    axes = Axes(min(xs) - wide, max(xs) + wide, top, heights, low, height)
    if doublings:
        ticks = [(scaled(v), f"{v:,}") for v in doublings if axes.low <= scaled(v) <= axes.high]
    else:
        ticks = [(v, format_short(v)) for v in round_values(axes.low, axes.high, 5)]
    axes.ticks(ticks)
    axes.axis()
    styles = (
        f'fill="none" stroke="{ACCENT}" stroke-width="1.9"',
        f'fill="none" stroke="{INK}" stroke-width="1.9" stroke-dasharray="5 2.5"',
    )
    for line, style in zip(points, styles, strict=False):
        if line:
            axes.path(line, style)
    for x, y in points[1] if len(points) > 1 else ():
        axes.dot(axes.x(x), axes.y(y), INK, 2.4)
    axes.marks((scaled(at), name) for at, name in marks)
    axes.x_name(x_name)
    if y_name:
        axes.parts.append(svg_text(0, FONT, y_name, "start"))
        x, y = min([line for line in points if line][-1], key=lambda at: at[1])
        axes.least(x, y)
    return svg(axes.parts, label, height=height + FONT + 6)


@drawn
def curves(
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]], label: str, x_name: str
) -> str:
    """Draw named lines of (x, y), each with its own hue and dashes, and a legend below. The first
    tenth of each line is left out when the height of the chart is chosen, because the high losses
    at the start of a training would flatten the rest."""
    settled = [y for _, line in lines for _, y in line[len(line) // 10 :] if math.isfinite(y)]
    if not settled:
        raise ValueError("no point to draw")
    top = max(settled) + (max(settled) - min(settled)) * 0.05
    no_dots: list[Point] = []
    capped = [
        (n, no_dots, [(x, min(y, top)) for x, y in at if math.isfinite(y)]) for n, at in lines
    ]
    return str(scatter(capped, label, x_name))


@drawn
def scatter(
    series: Sequence[tuple[str, Sequence[tuple[float, float]], Sequence[tuple[float, float]]]],
    label: str,
    x_name: str,
    logs: str = "",
) -> str:
    """Draw series with a legend below. Each series is (name, points drawn as dots, points joined by
    a line). `logs` names the axes that are logarithmic: `x`, `y` or `xy`."""
    height, room = 200, FONT + 6
    drawn = [at for _, points, line in series for at in (*points, *line)]
    if not drawn:
        raise ValueError("no point to draw")
    scales = [math.log10 if axis in logs else float for axis in "xy"]
    bounds, ticks = [], []
    for nth, scale in enumerate(scales):
        values = [scale(at[nth]) for at in drawn]
        edge = (max(values) - min(values)) * 0.06 or 0.05
        low, high = min(values) - edge, max(values) + edge
        if scale is float:
            steps = round_values(low, high, 5)
        else:
            steps = log_ticks(10**low, 10**high)
        bounds.append((low, high))
        # One format per axis.
        size = abs(steps[-1])
        shown = format_power if size >= 1e9 else format_short if size >= 1e3 else "{:.6g}".format
        ticks.append([(scale(v), shown(v)) for v in steps])
    (left, right), (bottom, top) = bounds
    axes = Axes(left, right, top, ticks[1], bottom, height)
    axes.ticks(ticks[0])
    axes.axis()
    base = height + FONT
    axes.x_name(x_name)
    for nth, (name, points, line) in enumerate(series):
        dashes = f' stroke-dasharray="{6 - nth % 4} {1 + nth % 5}"' if nth else ""
        style = f'fill="none" stroke="{COLOURS[nth % 4]}" stroke-width="1.9"{dashes}'
        if line:
            axes.path([(scales[0](x), scales[1](y)) for x, y in line], style)
        colour = COLOURS[nth % 4]
        for x, y in points:
            axes.dot(axes.x(scales[0](x)), axes.y(scales[1](y)), colour)
        axes.name(name, base + room * (nth + 1), style, "" if line else colour)
    return svg(axes.parts, label, height=base + room * len(series) + 6)


@drawn
def intervals(
    rows: Sequence[tuple[str, float, Sequence[float] | None]], label: str, x_name: str
) -> str:
    """Draw values with their intervals, one per row, and a vertical line at 0. rows: (name, value,
    (low, high) or None)."""
    values = [0.0, *(v for _, value, limits in rows for v in (value, *(limits or ())))]
    edge = (max(values) - min(values)) * 0.05 or 0.05
    thick = 20
    height = TOP + thick * len(rows) + BOTTOM
    low, high = min(values) - edge, max(values) + edge
    axes = Axes(low, high, 1.0, [], height=height)
    axes.left = max(LEFT, *(text_width(name) + 8 for name, _, _ in rows))
    axes.ticks([(v, f"{v:.6g}") for v in round_values(low, high, 4)])
    axes.axis()
    axes.marks([(0.0, "0")])
    for nth, (name, value, limits) in enumerate(rows):
        y = TOP + thick * (nth + 0.5)
        axes.parts.append(svg_text(axes.left - 6, y + FONT / 3, name, "end", INK))
        if limits is not None:
            line = f"M{px(axes.x(limits[0]))} {px(y)}H{px(axes.x(limits[1]))}"
            axes.line(line, ACCENT, 2.2)
        axes.dot(axes.x(value), y, ACCENT, 3.6)
    axes.x_name(x_name)
    return svg(axes.parts, label, height=height + FONT + 6)


@drawn
def yields(
    points: Sequence[tuple[float, float, float]],
    scale: str,
    label: str,
    marks: Sequence[tuple[float, str]],
) -> str:
    """Draw the number of documents that each threshold would keep. A point is (threshold, least
    number kept, largest number kept). `marks` are vertical lines (threshold, name)."""
    scaled = scaling(scale)
    low, high = points[0][0], points[-1][0]
    top = max(1.0, max(most for _, _, most in points) * 1.08)
    ys = [(v, format_short(v)) for v in round_values(0, top, 4, whole=True)]
    axes = Axes(scaled(low), scaled(high), top, ys)
    axes.ticks([(scaled(v), format_short(v)) for v in x_ticks(low, high, scale)])
    sure = [(scaled(at), kept) for at, kept, _ in points]
    most = [(scaled(at), kept) for at, _, kept in reversed(points)]
    axes.path([*sure, *most], f'fill="{GONE}"', close=True)
    axes.path(sure, f'fill="none" stroke="{ACCENT}" stroke-width="2.2"')
    axes.axis()
    axes.marks((scaled(at), name) for at, name in sorted(marks))
    return svg(axes.parts, label)


@drawn
def bars(
    rows: Sequence[tuple[str, Sequence[float | None]]],
    label: str,
    value: Chart,
    names: Sequence[str] = (),
) -> str:
    """Draw horizontal bars. Each series has its own hue; a single series has the accent colour.
    `rows` are (name, a value per series). `value` formats a value, to be shown after its bar.
    `names` are the names of the series, shown after the bars of the first row."""
    thick, gap = 13, 9
    texts = [[value(v) for v in values] for _, values in rows]
    for nth, name in enumerate(names[: len(texts[0])]):
        texts[0][nth] += f" {name[:16]}"
    left = max(text_width(name) for name, _ in rows) + 8
    room = WIDTH - left - max(text_width(t) for line in texts for t in line) - 8
    most = max((v for _, values in rows for v in values if v is not None), default=0) or 1
    parts, y = [], 0.0
    for (name, values), line in zip(rows, texts, strict=True):
        height = thick * len(values)
        parts.append(svg_text(left - 6, y + height / 2 + FONT / 3, name, "end"))
        for nth, (v, text) in enumerate(zip(values, line, strict=True)):
            wide = room * max(0.0, v or 0.0) / most
            colour = COLOURS[nth % 4] if len(values) > 1 else ACCENT
            size = f'width="{px(wide)}" height="{thick - 2}"'
            parts.append(f'<rect x="{px(left)}" y="{px(y)}" {size} fill="{colour}"/>')
            parts.append(svg_text(left + wide + 4, y + FONT - 1, text, "start"))
            y += thick
        y += gap
    return svg(parts, label, height=y)


@drawn
def heat(
    rows: Sequence[str],
    cells: dict[tuple[str, str], float],
    label: str,
    columns: Sequence[str] | None = None,
) -> str:
    """Draw a table of shares from 0 to 1; larger shares are darker. `cells` maps (row, column) to
    the share. If `columns` is None, the columns have the names of the rows."""
    columns = rows if columns is None else columns
    cell, left, top = 12, *(LETTER * max(map(len, side)) + 8 for side in (rows, columns))
    across = {name: left + cell * i for i, name in enumerate(columns)}
    down = {name: top + cell * i for i, name in enumerate(rows)}
    parts = []
    for (row, column), share in sorted(cells.items()):
        if share > 0:
            # The square root makes small shares visible beside large ones.
            shade = round(math.sqrt(min(1.0, share)), 3)
            opacity = f' fill-opacity="{shade:g}"' if shade < 1 else ""
            place = f'x="{px(across[column])}" y="{px(down[row])}"'
            size = f'width="{cell}" height="{cell}"'
            parts.append(f'<rect {place} {size} fill="{ACCENT}"{opacity}/>')
    for name, at in down.items():
        parts.append(svg_text(left - 4, at + cell / 2 + FONT / 3, name, "end"))
    for name, at in across.items():
        move = f"translate({px(at + cell / 2 + FONT / 3)} {px(top - 4)}) rotate(-90)"
        parts.append(f'<g transform="{move}">{svg_text(0, 0, name, "start")}</g>')
    width, height = cell * len(columns), cell * len(rows)
    box = f'x="{px(left)}" y="{px(top)}" width="{width}" height="{height}"'
    parts.append(f'<rect {box} fill="none" stroke="{GRID}" stroke-width="1.1"/>')
    return svg(parts, label, left + width + 4, top + height + 4)
