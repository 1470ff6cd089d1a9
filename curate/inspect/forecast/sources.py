"""Where a forecast's figures come from: groups of measured runs, the first that knows a thing wins.

The run that the user names; else the newest fitting one, in OUT itself or in the workspace; behind
either, the runs that were measured for the package (measured.json, by scripts/measure_scale.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from curate.errors import UsageError
from curate.inspect.forecast.measured import (
    Measured,
    SketchFigures,
    StageFigures,
    StepFigures,
    of_record,
    read,
)
from curate.run.workspace import Workspace
from curate.steps.contracts import Settings
from curate.steps.recipe import Recipe

Group = tuple[Measured, ...]


def shipped() -> dict[str, Any]:
    """The table that the package brings: when and on what it was measured, and the runs."""
    path = files("curate.inspect.forecast").joinpath("measured.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def shipped_group() -> Group:
    """Its runs, the largest first."""
    table = shipped()
    said = f"the package's table ({table['date']}, {table['cpu']})"
    runs = [of_record(r, f"{said}: {r['recipe']}, {r['data']}") for r in table["runs"]]
    return tuple(sorted((r for r in runs if r), key=lambda r: -r.documents))


def groups(
    recipe: Recipe,
    sample: Path | None,
    out: Path | None,
    space: Workspace | None,
    kinds: frozenset[str] = frozenset(),
) -> list[Group]:
    """The groups in order of preference, in each the run first that is most like the recipe.
    kinds: formats of the input (measured.kind_of). UsageError where the sample is no run."""
    found: list[Group] = []
    steps = [s.name for s in recipe.document_steps]
    if sample is not None:
        found.append((read(sample),))
    else:
        nearest = _newest(steps, out, space)
        if nearest is not None:
            found.append((nearest,))
    alike = sorted(shipped_group(), key=lambda run: _likeness(recipe, run, kinds), reverse=True)
    return [*found, tuple(alike)]


def _likeness(recipe: Recipe, run: Measured, kinds: frozenset[str]) -> tuple[int, bool, bool]:
    """Steps in common, and whether it read such an input, and a recipe of that name."""
    names = {s.name for s in run.steps.values()}
    common = sum(s.name in names for s in recipe.document_steps)
    return common, run.kinds == kinds, run.recipe == recipe.name


def _newest(steps: list[str], out: Path | None, space: Workspace | None) -> Measured | None:
    """The newest run, OUT first, that has all of the steps, else most of them."""
    folders = [out] if out is not None else []
    if space is not None:
        folders += [path for _, path in reversed(space.numbered())]
    best: tuple[int, Measured] | None = None
    for folder in folders:
        if not (folder / "run.json").is_file():
            continue
        try:
            run = read(folder)
        except UsageError:
            continue
        common = len({s.name for s in run.steps.values()} & set(steps))
        if common and (best is None or common > best[0]):
            best = (common, run)
    return best[1] if best else None


@dataclass(frozen=True)
class Found:
    """A step's figures: from which run, and what is said where that was no exact match."""

    run: Measured
    step: StepFigures
    exact: bool


def step_figures(where: list[Group], step: Settings) -> Found | None:
    """The same step with the same settings, else the one of its name with most settings equal,
    within the first group that has one."""
    settings = step.model_dump(mode="json")
    for group in where:
        best: tuple[int, Found] | None = None
        for run in group:
            for known in run.steps.values():
                if known.name != step.name or known.cpu is None:
                    continue
                equal = sum(known.settings.get(k) == v for k, v in settings.items())
                if best is None or equal > best[0]:
                    exact = known.settings == settings
                    best = (equal + exact, Found(run, known, exact))
        if best:
            return best[1]
    return None


def sketch_figures(where: list[Group], step: Settings) -> tuple[Measured, SketchFigures] | None:
    """Sketching and deciding by the step as `step_figures` finds it."""
    found = step_figures(where, step)
    if found is not None and found.step.label in found.run.sketches:
        return found.run, found.run.sketches[found.step.label]
    return None


def stage_figures(where: list[Group], labels: list[str], first: bool) -> StageFigures | None:
    """Reading and writing: of a stage with the same steps, else of one in the same place."""
    for group in where:
        alike = [s for run in group for s in run.stages if s.first == first]
        for stage in alike:
            if list(stage.steps) == labels:
                return stage
        if alike:
            return alike[0]
    return None


def in_workers(where: list[Group], step: Settings) -> float | None:
    """The share of deciding the step's sketches that workers do as tasks: what the largest run had,
    since small ones are not split. None: no figure."""
    best: tuple[int, float] | None = None
    for run in (run for group in where for run in group):
        for label, sketch in run.sketches.items():
            if run.steps[label].name != step.name or None in (sketch.decided, sketch.tasks):
                continue
            here, tasks = sketch.decided or 0.0, sketch.tasks or 0.0
            if here + tasks > 0 and (best is None or sketch.documents > best[0]):
                best = sketch.documents, tasks / (here + tasks)
    return best[1] if best else None


def line(where: list[Group], work: str, step: Settings | None = None) -> tuple[float, float] | None:
    """(fixed seconds, seconds a document) of what is done once a run: `report` and such, or what
    decides the step's sketches, tasks of workers included. None: no figure.

    Two runs of one recipe and different sizes give a line; of the largest (within a factor of ten)
    the steepest counts, for a recipe of few columns has a short report. From a single run the fixed
    part of another group's line is taken off; where that was a third of what it took or more, the
    run was too small to say what a document costs, and the other line's slope goes through its
    point.
    """
    points = [_points(group, work, step) for group in where]
    lines = [_steepest([found for p in of if (found := _line(p))]) for of in points]
    for of, own in zip(points, lines, strict=True):
        if own is not None:
            return own[1], own[2]
        other = next((one for one in lines if one is not None), None)
        for documents, seconds in (max(p) for p in of):
            if other is None or seconds > 3 * other[1]:
                fixed = other[1] if other else 0.0
                if documents:
                    return fixed, (seconds - fixed) / documents
            else:
                return max(0.0, seconds - other[2] * documents), other[2]
    return None


def _points(group: Group, work: str, step: Settings | None) -> list[list[tuple[int, float]]]:
    """(documents, seconds) of the runs, by recipe, in their order."""
    found: dict[str, list[tuple[int, float]]] = {}
    alike: dict[str, list[tuple[int, float]]] = {}  # of the very settings
    for run in group:
        # Finding where archives may be cut is another work than reading the feet of parquet files.
        other = work == "planning" and run.kinds != group[0].kinds
        if step is None and work in run.once and not other:
            found.setdefault(run.recipe, []).append((run.documents, run.once[work]))
        for label, sketch in run.sketches.items():
            known = run.steps[label]
            if step is None or known.name != step.name:
                continue
            if sketch.decided is not None and sketch.tasks is not None:
                point = (sketch.documents, sketch.decided + sketch.tasks)
                found.setdefault(run.recipe, []).append(point)
                if known.settings == step.model_dump(mode="json"):
                    alike.setdefault(run.recipe, []).append(point)
    return list((alike or found).values())


def _steepest(lines: list[tuple[int, float, float]]) -> tuple[int, float, float] | None:
    largest = max((one[0] for one in lines), default=0)
    return max((one for one in lines if one[0] * 10 >= largest), key=lambda o: o[2], default=None)


def _line(points: list[tuple[int, float]]) -> tuple[int, float, float] | None:
    """(documents of the larger, fixed, slope) through the smallest and the largest of points three
    times apart or more."""
    (n1, s1), (n2, s2) = min(points), max(points)
    if n2 < 3 * max(1, n1) or s2 <= s1:
        return None
    slope = (s2 - s1) / (n2 - n1)
    return n2, max(0.0, s1 - slope * n1), slope
