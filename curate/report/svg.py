"""A chart as inline SVG: axes, ticks, shapes; the same bytes for the same figures.

Sizes are CSS pixels at most. Colours are names of the page's CSS variables, so they follow it in
the dark too; text is text, in the page's font. A drawing library would take half a second of every
run to load and draw this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 460, 150
FONT = 11
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 20, 24
INK, MUTED, ACCENT, GONE, GRID = "ink", "muted", "accent", "gone", "line"
ANCHORS = {"left": "start", "center": "middle", "right": "end"}
Scale = Callable[[float], float]
Point = tuple[float, float]


def number(value: float) -> str:
    """A coordinate, to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def span(low: float, high: float, margin: float = 0.0) -> tuple[float, float]:
    """An axis from low to high, wider by a share of its length; never of no length."""
    wide = (high - low) * margin
    low, high = low - wide, high + wide
    if high > low:
        return low, high
    return low - (abs(low) or 1.0) * 0.05, high + (abs(high) or 1.0) * 0.05


def round_ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten between low and high, at most `most` + 1."""
    length = high - low
    if not (length > 0 and math.isfinite(length)):
        return [low]
    power = 10.0 ** math.floor(math.log10(length / (most + 1)))
    sizes = [m * power for m in (1, 2, 2.5, 5, 10, 20)]
    if whole:
        sizes = [s for s in sizes if s >= 1 and s % 1 == 0] or [1.0]
    ticks: list[float] = []
    for step in sizes:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        ticks = [k * step for k in range(first, min(last, first + most + 1) + 1)]
        if len(ticks) <= most + 1:
            break
    return ticks


@dataclass
class Chart:
    """x, y: (value at the left or bottom, value at the right or top)."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: float = HEIGHT
    width: float = WIDTH
    edges: tuple[float, float, float, float] = (LEFT, RIGHT, TOP, BOTTOM)
    _parts: list[str] = field(default_factory=list)

    def across(self, value: float) -> float:
        """Pixels from the left."""
        left, right, _, _ = self.edges
        low, high = self.x
        return left + (value - low) / (high - low) * (self.width - left - right)

    def down(self, value: float) -> float:
        """Pixels from the top."""
        _, _, top, bottom = self.edges
        low, high = self.y
        return self.height - bottom - (value - low) / (high - low) * (self.height - top - bottom)

    def add(
        self, tag: str, colour: str | None = None, text: str | None = None, **given: object
    ) -> None:
        """An element; `colour` fills it. Attributes: `_` stands for `-`."""
        said = "".join(
            f' {name.replace("_", "-")}="{number(v) if isinstance(v, float) else v}"'
            for name, v in given.items()
        )
        fill = f' fill="var(--{colour})"' if colour else ""
        inner = f">{escape(text)}</{tag}>" if text is not None else "/>"
        self._parts.append(f"<{tag}{said}{fill}{inner}")

    def text(
        self,
        x: float,
        y: float,
        what: str,
        colour: str = MUTED,
        side: str = "center",
        **more: object,
    ) -> None:
        """Words at a place in pixels, their base line at y."""
        self.add("text", colour, what, x=x, y=y, text_anchor=ANCHORS[side], **more)

    def path(self, points: Iterable[Point], colour: str, wide: float = 0.0, more: str = "") -> None:
        """A line through points (values), or the area within them where it has no width."""
        places = (f"{number(self.across(x))} {number(self.down(y))}" for x, y in points)
        way = "M" + "L".join(places)
        if not wide:
            self._parts.append(f'<path d="{way}Z" fill="var(--{colour})"/>')
            return
        self._parts.append(
            f'<path d="{way}" fill="none" stroke="var(--{colour})" stroke-width="{number(wide)}"'
            f"{more}/>"
        )

    def x_axis(self, ticks: Sequence[tuple[float, str]], last: str = "center") -> None:
        """The line below and what stands at it: (value, label). last: side of the last label."""
        left, right, _, bottom = self.edges
        base = self.height - bottom
        self.add(
            "path", d=f"M{left} {number(base)}H{number(self.width - right)}",
            stroke=f"var(--{MUTED})", stroke_width=0.8,
        )  # fmt: skip
        for nth, (value, label) in enumerate(ticks):
            side = last if nth + 1 == len(ticks) else "center"
            self.text(self.across(value), base + 4 + FONT, label, side=side)

    def y_axis(self, ticks: Sequence[tuple[float, str]]) -> None:
        """Lines across and what stands at their left."""
        left, right, _, _ = self.edges
        for value, label in ticks:
            y = self.down(value)
            self.add(
                "path", d=f"M{left} {number(y)}H{number(self.width - right)}",
                stroke=f"var(--{GRID})", stroke_width=0.8,
            )  # fmt: skip
            self.text(left - 4, y + FONT * 0.35, label, side="right")

    def mark(self, value: float, what: str, side: str) -> None:
        """A line from bottom to top with words over it, which stay inside the chart."""
        _, _, top, bottom = self.edges
        x = self.across(value)
        self.add(
            "path", d=f"M{number(x)} {number(self.height - bottom)}V{top}",
            stroke=f"var(--{INK})", stroke_width=1.2,
        )  # fmt: skip
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        side = "left" if share < 0.15 else "right" if share > 0.85 else side
        self.text(x, top - 4, what, INK, side)

    def svg(self, label: str) -> str:
        """The element, with what it shows in words."""
        view = f"0 0 {number(self.width)} {number(self.height)}"
        return (
            f'<svg viewBox="{view}" role=img aria-label="{escape(label)}" font-size="{FONT}">'
            + "".join(self._parts)
            + "</svg>"
        )
