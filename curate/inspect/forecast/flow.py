"""Documents and bytes on their way through a plan, and the CPU seconds that each step takes.

Every step of a stage sees every document of it, marked ones too (`worked`); those that no step has
marked go on (`documents`, `text`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from curate.inspect.forecast.sources import Found, Group, stage_figures, step_figures
from curate.run.plan import MapStage
from curate.steps.contracts import CorpusStep, Settings


@dataclass
class Unknown:
    """What has no figure, and what stands for a figure though it was measured otherwise. Each line
    once, in order."""

    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def none_for(self, what: str) -> None:
        """Says that there is no figure."""
        line = f"no figure for {what}"
        if line not in self.missing:
            self.missing.append(line)

    def note(self, line: str) -> None:
        """Says something of a figure."""
        if line not in self.notes:
            self.notes.append(line)


@dataclass
class Flow:
    """worked: bytes of all documents of the stage; text: of the unmarked ones. A dedup of an input
    sees copies in proportion to its size, which `documents` does not know."""

    documents: float
    text: float
    worked: float


@dataclass
class Line:
    """One step of a stage. cpu: seconds, None without a figure; rate: bytes a CPU second;
    source: where the figure is from, where that is not what the forecast rests on."""

    label: str
    documents: float
    worked: float
    cpu: float | None
    rate: float | None = None
    exact: bool = True


def through(
    stage: MapStage, flow: Flow, where: list[Group], unknown: Unknown
) -> tuple[Flow, list[Line], float]:
    """(what the stage keeps, its steps, bytes of all documents that enter its last step)."""
    steps: list[Settings] = [stage.apply] if stage.apply else []
    steps += stage.steps
    flow = Flow(flow.documents, flow.text, flow.text)
    lines: list[Line] = []
    ending = flow.worked
    for step in steps:
        found = step_figures(where, step)
        ending = flow.worked
        if found is None or found.step.cpu is None:
            unknown.none_for(f"step {step.label}: it is left out, as if it kept all")
            lines.append(Line(step.label, flow.documents, flow.worked, None))
            continue
        _say_match(step, found, where, unknown)
        figures = found.step
        cpu = flow.worked * (figures.cpu or 0.0)
        rate = 1 / figures.cpu if figures.cpu else None
        lines.append(Line(step.label, flow.documents, flow.worked, cpu, rate, found.exact))
        if figures.kept is None:
            unknown.none_for(f"what step {step.label} keeps: it is taken to keep all")
        # A step at a stage's end has no volume behind it on record: of what it kept, then.
        onward = figures.onward
        if onward is None:
            onward = figures.text if figures.text is not None and step.name == "extract" else 1.0
        kept = 1.0 if figures.kept is None else figures.kept
        text = kept if figures.text is None else figures.text
        flow = Flow(flow.documents * kept, flow.text * text, flow.worked * onward)
    return flow, lines, ending


def _say_match(step: Settings, found: Found, where: list[Group], unknown: Unknown) -> None:
    run = found.run
    if not found.exact:
        changed = _changed(step.model_dump(mode="json"), found.step.settings)
        unknown.note(f"{step.label}: measured with other settings ({changed}), in {run.said}")
    elif run not in where[0]:
        unknown.note(f"{step.label}: from {run.said}")
    if isinstance(step, CorpusStep):
        unknown.note(
            f"{step.label}: keeps the share that it kept of {run.documents:,} documents; in a"
            " larger corpus more copies meet, so it will keep less"
        )


def _changed(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """The first settings that differ."""
    different = [k for k in mine if mine[k] != other.get(k)]
    shown = [f"{k}: {other.get(k)!r}" for k in different[:3]]
    return ", ".join(shown)[:120] + (", ..." if len(different) > 3 else "")


def around(
    stage: MapStage, entering: float, ending: float, where: list[Group], unknown: Unknown
) -> list[Line]:
    """Reading and writing of a stage."""
    figures = stage_figures(where, stage.labels, stage.index == 0)
    lines = []
    for label, size, cost in (
        ("read", entering, figures.read if figures else None),
        ("write", ending, figures.write if figures else None),
    ):
        if cost is None:
            unknown.none_for(f"{label} of stage {stage.index}")
        cpu = None if cost is None else size * cost
        lines.append(Line(label, 0.0, size, cpu, 1 / cost if cost else None))
    return lines
