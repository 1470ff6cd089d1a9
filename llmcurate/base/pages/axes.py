"""The axes of a chart in SVG: where values stand, ticks, lines across, and text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from llmcurate.base.disk.units import format_short

WIDTH, HEIGHT = 340, 140  # of a chart, in CSS pixels; drawn at this size or smaller
FONT = 11
LETTER = 0.6 * FONT  # width of a letter, about
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 20, 24  # margins around the axes
INK, MUTED, ACCENT, GONE, GRID = (f"var(--{name})" for name in "ink muted accent gone line".split())
Points = Iterable[tuple[float, float]]


def px(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text_width(text: str) -> float:
    """The width of a text in pixels, about."""
    return len(text) * LETTER


def svg_text(x: float, y: float, text: str, anchor: str = "middle", colour: str = MUTED) -> str:
    place = f'x="{px(x)}" y="{px(y)}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text, quote=False)}</text>"


def svg(parts: Iterable[str], label: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    view = f'viewBox="0 0 {px(width)} {px(height)}" font-size="{FONT}"'
    return f'<svg {view} role=img aria-label="{escape(label)}">{"".join(parts)}</svg>'


class Axes:
    """The axes of a chart of `height` pixels over x from low to high and y from 0 or `bottom` to
    `top`; what is drawn is appended to `parts`, in pixels. ys: (height, label) of lines across the
    chart, whose longest label sets the margin."""

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
        """Labels along both axes, and lines across the chart. Of two labels that would touch, the
        one further right stays."""
        for at, name in self.ys:
            y = self.y(at)
            self.line(f"M{px(self.left)} {px(y)}H{WIDTH - RIGHT}", GRID, 1.1)
            self.parts.append(svg_text(self.left - 4, y + FONT / 3, name, "end"))
        free = float(WIDTH)  # up to here nothing is written yet
        for at, name in reversed(xs):
            wide = text_width(name)
            middle = min(self.x(at), WIDTH - wide / 2)  # further right it would be cut off
            if middle + wide / 2 <= free:
                self.parts.append(svg_text(middle, self.base + FONT + 4, name))
                free = middle - wide / 2 - LETTER

    def name(self, name: str, y: float, style: str, dot: str = "") -> None:
        """A line of the legend, below the chart; dot: the colour of a dot in place of a line."""
        if dot:
            self.dot(self.left + 14, y - 4, dot)
        else:
            self.parts.append(f'<path d="M{px(self.left)} {px(y - 4)}h28" {style}/>')
        self.parts.append(svg_text(self.left + 34, y, name, "start", INK))

    def dot(self, x: float, y: float, colour: str, radius: float = 2.6) -> None:
        """A dot; in pixels."""
        self.parts.append(f'<circle cx="{px(x)}" cy="{px(y)}" r="{radius}" fill="{colour}"/>')

    def line(self, path: str, colour: str, width: float) -> None:
        """A line; in pixels."""
        self.parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="{width}"/>')

    def axis(self) -> None:
        """The x axis, over what is drawn."""
        self.line(f"M{px(self.left)} {self.base}H{WIDTH - RIGHT}", MUTED, 1.1)

    def x_name(self, name: str) -> None:
        """What the x axis is of, below its labels."""
        middle = (self.left + WIDTH - RIGHT) / 2
        self.parts.append(svg_text(middle, self.base + BOTTOM + FONT, name))

    def marks(self, marks: Iterable[tuple[float, str]]) -> None:
        """Upright lines with a name above each; of two, which may stand close together, the first
        has its name to the left and the second to the right."""
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
    """At most `most` + 1 multiples of 1, 2, 2.5 or 5 times a power of ten between low and high."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [s * power for s in (1, 2, 2.5, 5, 10) if not whole or (s * power) % 1 == 0]
    step = next((s for s in steps if (high - low) / s <= most), 1.0 if whole else 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def scaling(scale: str) -> Callable[[float], float]:
    """Where values stand on an axis: `log` is the signed logarithm of 1 + the size, else linear."""
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
    """Ticks of a square root axis: 0, a tenth, a half and all of a round number."""
    power = 10.0 ** math.floor(math.log10(most)) if most >= 1 else 1.0
    top = max(m * power for m in (1, 2, 5) if m * power <= max(most, 1))
    values = sorted({0.0, *(v for v in (top / 10, top / 2 if top > 1 else top, top) if v >= 1)})
    return [(math.sqrt(v), format_short(round(v))) for v in values]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; of many, the powers alone, at most 7 of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    if len(fine) <= 7:
        return fine
    decades = [v for v in fine if v in {10.0**k for k in powers}]
    return decades[:: math.ceil(len(decades) / 7)]
