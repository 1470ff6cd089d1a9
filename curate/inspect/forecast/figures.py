"""Figures of a forecast: CPU seconds and bytes a document, of an earlier run or of the table.

Each of them is a division of two numbers in the run's run.json, named here. Seconds to compile
kernels are in none of them: workers report those apart.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from curate.run.records import funnel_rows, stages_of
from curate.run.workspace import Workspace
from curate.steps.contracts import Settings
from curate.steps.recipe import Recipe
from llmcurate.base.errors import UsageError

Of = TypeVar("Of")
FIRST, LATER = "first", "later"
SMALL = 3  # a run of less than so many times the fixed seconds does not say what a document costs


@dataclass(frozen=True)
class Growth:
    """Seconds of what one process does for a whole run: `fixed` and, a document, `each`."""

    fixed: float
    each: float

    def seconds(self, documents: float) -> float:
        """For so many documents."""
        return self.fixed + self.each * documents


@dataclass(frozen=True)
class StepFigures:
    """cpu: seconds a document of the step's stage, whether marked already or not (`cpu` / `read`);
    kept: the share of documents that it passes on."""

    cpu: float
    kept: float = 1.0
    settings: dict[str, Any] | None = None


@dataclass(frozen=True)
class DedupFigures:
    """Of a step over the whole corpus, a document that reaches it. sketch: CPU seconds (`cpu` /
    `read` of the stage before it); sketch_bytes, decision_bytes: written; deciding: CPU seconds,
    None where the run did not count them; shared: the share of them that is tasks of workers."""

    sketch: float
    sketch_bytes: float
    decision_bytes: float
    deciding: Growth | None
    shared: float = 0.0


@dataclass(frozen=True)
class StageFigures:
    """read, write: CPU seconds a document that enters; partition, worker: CPU seconds to start
    each; peak_bytes: of one worker; stored: bytes of files with kept documents, a kept document;
    written: bytes of all files but sketches, a document."""

    read: float
    write: float
    partition: float
    worker: float
    peak_bytes: int
    stored: float
    written: float


@dataclass(frozen=True)
class Figures:
    """A run, or the table. input_bytes: of files, a document; formats: of the input; steps, dedups:
    by label; stages: by labels, or FIRST and LATER; once: what one process does, by name (planning:
    of a file in the place of a document); split: of what tasks do where there is much of it, the
    CPU seconds a document of the process that drives, and of workers; cut: CPU seconds to find
    where an archive may be cut, a place."""

    source: str
    documents: int
    input_bytes: float
    formats: frozenset[str]
    steps: dict[str, StepFigures] = field(default_factory=dict)
    dedups: dict[str, DedupFigures] = field(default_factory=dict)
    stages: dict[str, StageFigures] = field(default_factory=dict)
    once: dict[str, Growth] = field(default_factory=dict)
    split: dict[str, tuple[float, float]] = field(default_factory=dict)
    cut: float | None = None

    def step(self, step: Settings) -> StepFigures | None:
        """Those of the step with these settings, else of one of its name."""
        alike = _of_name(self.steps, step)
        same = [f for f in alike if f.settings == step.model_dump(mode="json")]
        return next(iter(same + alike), None)

    def dedup(self, step: Settings) -> DedupFigures | None:
        """Those of the step of this label, else of one of its name."""
        return self.dedups.get(step.label) or next(iter(_of_name(self.dedups, step)), None)

    def stage(self, labels: list[str], index: int) -> StageFigures:
        """Those of the stage with these steps, else of one in its place."""
        place = FIRST if index == 0 or LATER not in self.stages else LATER
        return self.stages.get("+".join(labels)) or self.stages[place]


def _of_name(figures: dict[str, Of], step: Settings) -> list[Of]:
    return [of for label, of in figures.items() if label.partition("#")[0] == step.name]


def package_table() -> Figures:
    """The table that comes with the package: figures.yaml."""
    path = files("curate.inspect.forecast").joinpath("figures.yaml")
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    dedups = {
        name: DedupFigures(sketch, stored, decisions, Growth(*table["deciding"][name]), shared)
        for name, (sketch, stored, decisions, shared) in table["dedups"].items()
    }
    return Figures(
        f"the package's table ({table['measured']})",
        table["documents"],
        table["input_bytes"],
        frozenset(table["formats"]),
        {name: StepFigures(*pair) for name, pair in table["steps"].items()},
        dedups,
        {name: StageFigures(**values) for name, values in table["stages"].items()},
        {name: Growth(*pair) for name, pair in table["once"].items()},
        {name: (alone, tasks) for name, (alone, tasks) in table["split"].items()},
        table["cut"],
    )


def find_figures(
    recipe: Recipe, sample: Path | None, out: Path | None, space: Workspace | None
) -> list[Figures]:
    """The run that the user names, else the newest with most of the recipe's steps, in OUT or in
    the workspace; then the table. UsageError where the sample is no run."""
    table = package_table()
    if sample is not None:
        return [read_figures(sample, table), table]
    folders = [out] if out is not None else []
    if space is not None:
        folders += [path for _, path in reversed(space.numbered())]
    runs = []
    for folder in folders:
        with suppress(UsageError):
            figures = read_figures(folder, table)
            common = sum(figures.step(step) is not None for step in recipe.document_steps)
            runs += [(common, figures)] if common else []
    return [*(figures for _, figures in sorted(runs, key=lambda run: -run[0])[:1]), table]


def read_figures(out: Path, table: Figures) -> Figures:
    """The figures of the run in OUT. UsageError where there is none, or it read nothing."""
    path = out / "run.json"
    if not path.is_file():
        raise UsageError(f"{out} holds no finished run (no run.json)")
    try:
        return run_figures(json.loads(path.read_text(encoding="utf-8")), str(out), table)
    except (LookupError, TypeError, AttributeError, ValueError, OSError, ZeroDivisionError):
        raise UsageError(
            f"{path} gives no figures: it is damaged or of another version, or its run read nothing"
        ) from None


def run_figures(record: dict[str, Any], source: str, table: Figures) -> Figures:
    """The figures in a run's record. table: gives the fixed seconds of what one process does."""
    documents, stages = record["totals"]["read"], record["stages"]
    first = stages[0]
    if first.get("limited"):
        raise UsageError(
            f"{source} read the first documents alone (read.limit), so it does not say how many the"
            " bytes of files hold: make a sample with --share"
        )
    passed_over = first.get("passed_over", 0)  # by a share of all documents
    once = {**record["driver"]["cpu"], "settling ids": first["settle_cpu"]}
    if once.pop("report, in workers", 0.0):
        del once["report"]  # of a run so large that tasks did it, as of ids
        del once["settling ids"]
    files = record["inputs"]
    cuts = max(0, record["partitions"] - len(files)) * (table.cut or 0.0)
    planned = max(0.0, once.pop("planning") - cuts)
    return Figures(
        source,
        documents,
        sum(f["bytes"] for f in files) / (documents + passed_over),
        frozenset(f["format"] for f in files),
        _steps(record),
        {s["decides"]: _dedup(s, table) for s in stages if s.get("decides") and s["kept"]},
        _stages(stages),
        {
            "planning": _growth(planned, len(files), table.once.get("planning")),
            **{n: _growth(seconds, documents, table.once.get(n)) for n, seconds in once.items()},
        },
    )


def _growth(seconds: float, documents: int, other: Growth | None) -> Growth:
    """A line through what one run took: from the fixed seconds of the table, or, in a run too small
    to say what a document costs, with the table's seconds a document."""
    if other is None:
        return Growth(0.0, seconds / documents)
    if seconds > SMALL * other.fixed:
        return Growth(other.fixed, (seconds - other.fixed) / documents)
    return Growth(max(0.0, seconds - other.each * documents), other.each)


def _steps(record: dict[str, Any]) -> dict[str, StepFigures]:
    settings = {s["label"]: s["settings"] for s in record["steps"]}
    funnel = {row.step: row for row in funnel_rows(stages_of(record))}
    steps = {}
    for stage in record["stages"]:
        for label in stage["steps"]:
            row = funnel[label]
            if stage["read"] and label in stage["cpu"]:
                kept = row.after / row.before if row.before else 1.0
                cpu = stage["cpu"][label] / stage["read"]
                steps[label] = StepFigures(cpu, kept, settings[label])
    return steps


def _dedup(stage: dict[str, Any], table: Figures) -> DedupFigures:
    label, kept, written = stage["decides"], stage["kept"], stage["written"]
    alone, tasks = stage["decided_cpu"], stage["decided"].get("tasks_cpu", 0.0)
    other = table.dedups.get(label.partition("#")[0])
    deciding, shared = None, 0.0
    if alone is not None and tasks is not None:
        deciding = _growth(alone + tasks, kept, other.deciding if other else None)
        # Small corpora are decided by one process; the table's share is that of a large one.
        shared = tasks / (alone + tasks) if tasks else other.shared if other else 0.0
    sketch, decisions = written["sketch"] / kept, written.get("decisions", 0) / kept
    return DedupFigures(stage["cpu"].get(label, 0.0) / kept, sketch, decisions, deciding, shared)


def _stages(stages: list[dict[str, Any]]) -> dict[str, StageFigures]:
    figures: dict[str, StageFigures] = {}
    for index, stage in enumerate(stages):
        read, kept, written = max(1, stage["read"]), max(1, stage["kept"]), stage["written"]
        files = sum(n for kind, n in written.items() if kind not in ("sketch", "decisions"))
        least, most = stage["start"]
        of_stage = StageFigures(
            stage["cpu"].get("read", 0.0) / (read + stage.get("passed_over", 0)),
            stage["cpu"].get("write", 0.0) / read,
            *(least, most - least, stage["peak_bytes"]),
            (written["kept"] + written["keys"]) / kept,
            files / read,
        )
        figures.setdefault(LATER if index else FIRST, of_stage)
        figures["+".join(stage["steps"])] = of_stage
    return figures
