"""The meanings of rules and scores, in words and as bars, from a run's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curate.disk.units import format_measure
from curate.documents.rejected import Reason
from curate.pages.axes import scaling


def spoken(rule: str) -> str:
    """`step.rule` as words: `gopher_quality: few words`."""
    step, _, name = rule.partition(".")
    return f"{step}: {name.replace('_', ' ')}"


@dataclass(frozen=True)
class Meanings:
    """What a run's record says of its rules and scores: in words, and as ranges of values."""

    steps: dict[str, str]  # label -> what the step does
    limits: dict[str, float]  # column -> a rule's limit on it
    charts: dict[str, dict[str, Any]]  # column -> its histogram
    rules: dict[str, dict[str, Any]]  # as run.json has them

    @classmethod
    def of(cls, record: dict[str, Any]) -> Meanings:
        """Return those of a run.json."""
        figures = record.get("figures") or {}
        rules = figures.get("rules") or {}
        limited = [r for r in rules.values() if r.get("column")]
        charts = {r["column"]: r["histogram"] for r in limited if "histogram" in r}
        charts |= figures.get("measures") or {}
        return cls(
            {s["label"]: s.get("about", "") for s in record.get("steps", ())},
            {r["column"]: r["threshold"] for r in limited if "threshold" in r},
            charts,
            rules,
        )

    def place(self, column: str, value: Any) -> float | None:
        """How far a value is from the least to the greatest one of the column's chart, 0 to 1; None
        where that is not known."""
        chart = self.charts.get(column)
        if chart is None or not isinstance(value, (int, float)) or value != value:
            return None
        scaled = scaling(chart["scale"])
        low, high = scaled(chart["edges"][0]), scaled(chart["edges"][-1])
        return min(1.0, max(0.0, (scaled(value) - low) / (high - low))) if high > low else None

    def span(self, column: str) -> str:
        """`0 to 12`: the least and the greatest value of the column's chart."""
        edges = self.charts[column]["edges"]
        return f"{format_measure(edges[0])} to {format_measure(edges[-1])}"

    def why(self, reason: Reason) -> str:
        """The rule's condition, as `drops where stop words are below 2`; empty where no limit
        decides."""
        if reason.threshold is None or reason.value is None:
            return ""
        figures = self.rules.get(reason.name) or {}
        above = figures.get("above")
        if above is None and reason.value != reason.threshold:
            above = reason.value > reason.threshold
        side = {None: "at", True: "above", False: "below"}[above]
        measure = (figures.get("column") or "").partition(".")[2].replace("_", " ") or "its value"
        return f"drops where {measure} is {side} {format_measure(reason.threshold)}"
