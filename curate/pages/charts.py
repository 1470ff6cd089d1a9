"""Charts as inline SVG, drawn by matplotlib: the same bytes for the same figures.

matplotlib loads when the first chart is drawn. Colours are names of CSS variables, so that a page
decides them, in the dark too; text stays text, in the page's font.
"""

from __future__ import annotations

import io
import logging
import math
import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from html import escape
from typing import TYPE_CHECKING, Any

from curate.disk.units import format_short

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, HEIGHT = 460, 150  # in CSS pixels; drawn at this size or smaller
FONT = 11
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 20, 24
# Colours that stand for CSS variables until the SVG is written.
INK, MUTED, ACCENT, GONE, GRID = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {INK: "ink", MUTED: "muted", ACCENT: "accent", GONE: "gone", GRID: "line"}
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "llmcurate",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": FONT * 0.72,  # points of the 72 to an inch that 100 pixels are drawn as
    "axes.linewidth": 0.8,
    "path.simplify": False,
}
Chart = Callable[..., str]


def drawn(chart: Chart) -> Chart:
    """A chart that cannot be drawn is a line of text: it must not cost the run its report."""

    @wraps(chart)
    def safe(*args: Any, **named: Any) -> Markup:
        from markupsafe import Markup

        try:
            return Markup(chart(*args, **named))
        except Exception as error:
            reason = escape(f"{type(error).__name__}: {error}"[:200])
            return Markup(f"<p class=note>This chart could not be drawn ({reason}).</p>")

    return safe


@lru_cache(maxsize=1)
def _library() -> Any:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no advice about its font cache
    import matplotlib
    from matplotlib.backends import backend_svg

    # A user's own settings must not change the page; validating all of them anew costs
    # milliseconds a chart.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        settings = dict(matplotlib.rcParams)
    return matplotlib, backend_svg, settings


def _figure(height: int = HEIGHT) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 100, height / 100), dpi=100)
    box = (
        LEFT / WIDTH,
        BOTTOM / height,
        (WIDTH - LEFT - RIGHT) / WIDTH,
        (height - TOP - BOTTOM) / height,
    )
    axes = figure.add_axes(box)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(length=0, colors=MUTED, pad=4)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    return figure, axes


def _svg(draw: Callable[[], Any], label: str) -> str:
    """The figure that `draw` makes, as an SVG element."""
    matplotlib, backend, settings = _library()
    out = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that its fonts lack: the page's may have it
        dict.update(matplotlib.rcParams, settings)
        figure = draw()
        backend.FigureCanvasSVG(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<g) id="[^"]*"', r"\1", svg)  # else each chart has its own `figure_1`
    svg = re.sub(r"font: (?:\d+ )?([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    view = re.search(r'viewBox="([^"]*)"', svg)
    head = f'<svg viewBox="{view.group(1) if view else ""}" role=img aria-label="{escape(label)}">'
    body = svg[svg.index(">") + 1 :]
    return head + re.sub(r"\s*\n\s*", " ", body).strip()


def _scaling(scale: str) -> Callable[[float], float]:
    if scale == "log":
        return lambda v: math.copysign(math.log10(1 + abs(v)), v)
    return lambda v: v


def _x_ticks(axes: Any, edges: Sequence[float], scale: str, open_end: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = edges[0], edges[-1]
    if scale == "log":
        decades = [0.0, *(10.0**k for k in range(0, 16))]
        values = [v for v in decades if low <= v <= high]
        if len(values) < 4:
            values = [v for d in decades for v in (d, 3 * d) if low <= v <= high]
        values = sorted(set(values))[:: math.ceil(len(values) / 7)]
    else:
        whole = len(edges) > 1 and edges[0] % 1 == 0.5
        locator = MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10])
        values = [float(v) for v in locator.tick_values(low, high) if low <= v <= high]
    scaled = _scaling(scale)
    labels = [format_short(v) for v in values]
    if open_end:
        values, labels = [*values[:-1], high], [*labels[:-1], f"{format_short(high)} and more"]
    axes.set_xticks([scaled(v) for v in values], labels)
    if open_end:
        axes.get_xticklabels()[-1].set_horizontalalignment("right")


def _root_ticks(axes: Any, most: float) -> None:
    """Ticks of a square root axis: about 0, 1/16, 1/4 and all of a round number."""
    axes.set_ylim(0, math.sqrt(most) * 1.02 if most else 1)
    power = 10.0 ** math.floor(math.log10(most)) if most >= 1 else 1.0
    top = max(m * power for m in (1, 2, 5) if m * power <= max(most, 1))
    values = sorted({0.0, *(v for v in (top / 10, top / 2 if top > 1 else top, top) if v >= 1)})
    axes.set_yticks([math.sqrt(v) for v in values], [format_short(round(v)) for v in values])


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
    further lines (value, label).

    data: bins.Histogram.dump(). The height is the square root of the number, so that a few
    documents beside many can be seen. only_marked: nothing is known of the others. above: on which
    side of the threshold values are marked.
    """
    counts = data["counts"]
    gone = list(counts) if only_marked else list(marked) or [0] * len(counts)

    def draw() -> Any:
        figure, axes = _figure()
        scaled = _scaling(data["scale"])
        edges = [scaled(e) for e in data["edges"]]
        for values, colour in (
            (counts, GONE),
            ([c - g for c, g in zip(counts, gone, strict=True)], ACCENT),
        ):
            if any(values):
                roots = [math.sqrt(max(0, v)) for v in values]
                axes.stairs(roots, edges, fill=True, color=colour, linewidth=0)
        axes.set_xlim(edges[0], edges[-1])
        _x_ticks(axes, data["edges"], data["scale"], data.get("open", False))
        _root_ticks(axes, max(counts, default=0))
        # Between two whole numbers, where the threshold itself is on the side that stays.
        shift = (0.5 if above else -0.5) if data["edges"][0] % 1 == 0.5 and above is not None else 0
        drawn_at = [(scaled(v), name, "center") for v, name in lines]
        if len(lines) == 2:  # may stand close together
            drawn_at = [(*drawn_at[0][:2], "right"), (*drawn_at[1][:2], "left")]
        if threshold is not None:
            drawn_at.append(
                (scaled(threshold + shift), f"limit {format_short(threshold)}", "center")
            )
        for at, name, side in drawn_at:
            if not edges[0] <= at <= edges[-1]:
                continue
            axes.axvline(at, color=INK, linewidth=1.2)
            share = (at - edges[0]) / (edges[-1] - edges[0])
            axes.text(
                at,
                1.03,
                name,
                transform=axes.get_xaxis_transform(),
                ha="left" if share < 0.15 else "right" if share > 0.85 else side,
                va="bottom",
                color=INK,
            )
        return figure

    return _svg(draw, label)


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

    def draw() -> Any:
        from matplotlib.ticker import MaxNLocator

        figure, axes = _figure(height=200)
        styles = ({"color": ACCENT}, {"color": INK, "linestyle": "--", "marker": "o"})
        for points, style in zip(lines, styles, strict=False):
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, linewidth=1.4, markersize=3.5, **style)
        axes.margins(x=0.02, y=0.12)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if doublings:
            axes.set_xscale("log", base=2)
            axes.set_xticks(doublings, [f"{tick:,}" for tick in doublings])
            axes.minorticks_off()
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_title(x_name, loc="right", color=MUTED, fontsize=FONT * 0.72)
        return figure

    return _svg(draw, label)


@drawn
def yields(
    points: Sequence[tuple[float, float, float]],
    scale: str,
    label: str,
    marks: Sequence[tuple[float, str]],
) -> str:
    """What is kept at thresholds: (threshold, surely, at most), and lines at chosen thresholds."""

    def draw() -> Any:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        figure, axes = _figure()
        scaled = _scaling(scale)
        xs = [scaled(t) for t, _, _ in points]
        sure, most = [s for _, s, _ in points], [m for _, _, m in points]
        axes.fill_between(xs, sure, most, color=GONE, linewidth=0)
        axes.plot(xs, sure, color=ACCENT, linewidth=1.6)
        low, high = points[0][0], points[-1][0]
        axes.set_xlim(scaled(low), scaled(high) if high > low else scaled(low) + 1)
        _x_ticks(axes, [low, high], scale, False)
        axes.set_ylim(0, max(1.0, max(most) * 1.08))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: format_short(v)))
        inside = sorted((at, name) for at, name in marks if low <= at <= high)
        for nth, (at, name) in enumerate(inside):
            axes.axvline(scaled(at), color=INK, linewidth=1.2)
            span = scaled(high) - scaled(low)
            share = (scaled(at) - scaled(low)) / span if span else 0.0
            side = "left" if share < 0.15 else "right" if share > 0.85 else "center"
            if len(inside) == 2:  # may stand close together
                side = "left" if nth else "right"
            where = axes.get_xaxis_transform()
            axes.text(scaled(at), 1.03, name, transform=where, ha=side, va="bottom", color=INK)
        return figure

    return _svg(draw, label)


@drawn
def heat(labels: Sequence[str], cells: dict[tuple[str, str], float], label: str) -> str:
    """A square of shares: (row, column) -> 0 to 1, the darker the more; both sides are `labels`."""

    def draw() -> Any:
        from matplotlib.collections import PatchCollection
        from matplotlib.colors import to_rgba
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

        side, edge = 12 * len(labels) + 12, 12 * max(4, 0.6 * max(map(len, labels))) + 4
        figure = Figure(figsize=((side + edge) / 100,) * 2, dpi=100)
        share = side / (side + edge)
        axes = figure.add_axes((1 - share, 0, share, share))
        order = {name: i for i, name in enumerate(labels)}
        marks = sorted((order[a], order[b], v) for (a, b), v in cells.items() if v > 0)
        # A root, so that a few texts beside many can be seen.
        colours = [to_rgba(ACCENT, round(math.sqrt(min(1.0, v)), 3)) for _, _, v in marks]
        squares = [Rectangle((b - 0.5, a - 0.5), 1, 1) for a, b, _ in marks]
        axes.add_collection(PatchCollection(squares, facecolors=colours, linewidths=0))
        axes.set_xlim(-0.5, len(labels) - 0.5)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xticks(range(len(labels)), labels, rotation=90)
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(length=0, colors=MUTED, pad=2, top=True, labeltop=True, labelbottom=False)
        for spine in axes.spines.values():
            spine.set_color(GRID)
        return figure

    return _svg(draw, label)
