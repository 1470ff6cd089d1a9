"""Forecast CPU hours, memory, bytes, objects, time and money of a plan, stage by stage.

The number of documents is the input's bytes divided by the bytes per document of an earlier run.
Each other quantity is that number times a figure per document, from the run.json of an earlier run
or the table of costs in this package. Time is CPU time divided by the number of workers, except for
work that one process does alone. Work without a known figure is listed in `Forecast.missing` and
left out of the totals, as is the time to compile kernels (numba functions).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from curate.corpus.sizes import Sizes
from curate.formats.inputs import partition_size
from curate.run.plan import MapStage, RunPlan
from curate.run.records import funnel_rows, stages_of
from curate.run.workspace import Workspace
from curate.steps.contracts import CorpusStep, Settings, code_of
from curate.steps.recipe import Recipe
from llmcurate.base.disk.units import counted, format_bytes, format_duration, format_scaled
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import table

Of = TypeVar("Of")
FIRST, LATER = "first", "later"
# A run shorter than this multiple of the fixed seconds does not show the cost per document.
SAYS_LITTLE = 3


@dataclass(frozen=True)
class Growth:
    """CPU seconds that one process needs for a whole run: `fixed` + `each` * documents."""

    fixed: float
    each: float

    def seconds(self, documents: float) -> float:
        return self.fixed + self.each * documents


@dataclass(frozen=True)
class StepFigures:
    """The cost of a step. `cpu` is the step's CPU seconds per document that enters its stage.
    Documents that an earlier step of the stage drops count too."""

    cpu: float
    kept: float = 1.0  # share of the documents that the step keeps
    settings: dict[str, Any] | None = None


@dataclass(frozen=True)
class DedupFigures:
    """The cost of a dedup per document that reaches it."""

    sketch: float  # CPU seconds to compute the sketch that is compared
    sketch_bytes: float  # bytes written
    decision_bytes: float  # bytes written
    deciding: Growth | None  # CPU seconds to decide what to drop, if recorded
    shared: float = 0.0  # fraction of `deciding` that the workers share


@dataclass(frozen=True)
class StageFigures:
    """The cost of a stage: a pass over all documents, with one or more steps."""

    read: float  # CPU seconds per incoming document
    write: float  # CPU seconds per incoming document
    partition: float  # CPU seconds to start a partition
    worker: float  # CPU seconds to start a worker
    peak_bytes: int  # memory of one worker
    stored: float  # bytes of kept files per kept document
    written: float  # bytes of all files except sketches, per incoming document


@dataclass(frozen=True)
class Figures:
    """The costs of an earlier run, or the package's table of costs.

    `steps` and `dedups` map a step's label to its costs. `stages` maps the labels of a stage's
    steps, joined by `+`, to the stage's costs. If these labels are not a key of `stages`, the key
    FIRST is used for a first stage and LATER for a later one. `once` maps work that one process
    does alone to its CPU seconds: a fixed number, and a number per document (per file for
    planning). `split` maps work that the driver shares with workers in large runs to two numbers,
    the CPU seconds per document in the driver and in the workers.
    """

    source: str
    documents: int
    input_bytes: float  # bytes of input files per document
    formats: frozenset[str]  # of the input files
    steps: dict[str, StepFigures] = field(default_factory=dict)
    dedups: dict[str, DedupFigures] = field(default_factory=dict)
    stages: dict[str, StageFigures] = field(default_factory=dict)
    once: dict[str, Growth] = field(default_factory=dict)
    split: dict[str, tuple[float, float]] = field(default_factory=dict)
    cut: float | None = None  # CPU seconds to find one place to cut an archive

    def step(self, step: Settings) -> StepFigures | None:
        """Return the costs of a step in an earlier run, or None. The step with equal settings comes
        first, then any step of the same name."""
        alike = _of_name(self.steps, step)
        same = [f for f in alike if f.settings == step.model_dump(mode="json")]
        return next(iter(same + alike), None)

    def dedup(self, step: Settings) -> DedupFigures | None:
        return self.dedups.get(step.label) or next(iter(_of_name(self.dedups, step)), None)

    def stage(self, labels: list[str], index: int) -> StageFigures:
        """Return the costs of the stage with the steps `labels`. If they are unknown, return the
        general costs of a first stage (FIRST) if `index` is 0, or of a later one (LATER)."""
        place = FIRST if index == 0 or LATER not in self.stages else LATER
        return self.stages.get("+".join(labels)) or self.stages[place]


def _of_name(figures: dict[str, Of], step: Settings) -> list[Of]:
    return [of for label, of in figures.items() if label.partition("#")[0] == step.name]


def package_table() -> Figures:
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
    """Return the best source of figures, if any, and then the package's table of costs. The best
    source is the run that the user names (`sample`), or else the run in OUT or the workspace with
    the most steps in common with the recipe; among equals, OUT and then the newest."""
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
    """Return the costs of the run in OUT, or raise UsageError. For `table`, see `run_figures`."""
    path = out / "run.json"
    if not path.is_file():
        raise UsageError(f"{out} holds no finished run: it has no run.json")
    try:
        return run_figures(json.loads(path.read_text(encoding="utf-8")), str(out), table)
    except (LookupError, TypeError, AttributeError, ValueError, OSError, ZeroDivisionError):
        raise UsageError(
            f"{path} has no usable figures: it is damaged or old, or its run read nothing"
        ) from None


def run_figures(record: dict[str, Any], source: str, table: Figures) -> Figures:
    """Return the figures in a run's record. The record has total CPU seconds; `table`, the
    package's table of costs, is used to split them into fixed seconds and seconds per document."""
    documents, stages = record["totals"]["read"], record["stages"]
    first = stages[0]
    if first.get("limited"):
        raise UsageError(
            f"{source} read only the first documents (read.limit), so bytes per document are not"
            " known: make a sample with --share"
        )
    passed_over = first.get("passed_over", 0)  # skipped by `read.share`
    once = {**record["driver"]["cpu"], "settling ids": first["settle_cpu"]}
    if once.pop("report, in workers", 0.0):
        del once["report"]  # in large runs workers do most of both: see `split`
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
    """Split a run's CPU seconds into fixed seconds and seconds per document. `other` is the split
    in the package's table of costs. If the run is long enough, the fixed seconds are those of
    `other`, else the seconds per document are. Without `other`, no seconds are fixed."""
    if other is None:
        return Growth(0.0, seconds / documents)
    if seconds > SAYS_LITTLE * other.fixed:
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
        # One process decides on a small corpus; the table has the share of a large one.
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


GETS_A_FILE = 2  # requests per parquet file, at least: footer and rows

# The driver's cost per partition of any size (benchmarks/bench_driver.py, on an AMD EPYC).
# CPU seconds to plan, to settle ids, per stage, to assemble, and in workers to gather ids.
# Bytes of memory: HELD_FIRST without partitions, then HELD for each, and HELD_DECIDING more if a
# dedup holds the footers of sketches. Bytes of files: LEDGER per stage and once more, PLAN_FILES.
PLANNED, SETTLED, MAPPED, ASSEMBLED, GATHERED = 5e-6, 20e-6, 36e-6, 34e-6, 730e-6
ID_BYTES = 40  # per id in the files of a partition
ARCHIVE_BYTES = 10**9  # per file of an assumed input: a crawl archive
HELD_FIRST, HELD, HELD_DECIDING = 150 << 20, 50, 10_000
LEDGER, PLAN_FILES = 2_400, 400


@dataclass(frozen=True)
class Prices:
    """Prices in USD. Defaults are AWS list prices of us-east-1 in 2025 without discount; spot
    instances cost about a third. Sources: AWS, "Spot price per unit hour example", EC2 Auto Scaling
    guide; https://aws.amazon.com/s3/pricing/."""

    cpu_hour: float = 0.0425  # a c5.4xlarge: 0.68 per hour for 16 vCPU
    put: float = 0.005  # 1,000 write requests to S3 Standard
    get: float = 0.0004  # 1,000 read requests to S3 Standard
    gb_month: float = 0.023  # 10^9 bytes in S3 for a month
    months: float = 1.0  # how long the output is stored


def parse_prices(texts: Iterable[str]) -> Prices:
    """Return the prices with changes such as `cpu_hour=0.02`. Raises UsageError for other texts."""
    names = [f.name for f in fields(Prices)]
    values: dict[str, float] = {}
    for pair in (part for text in texts for part in text.split(",")):
        key, _, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if key not in names:
            near = get_close_matches(key, names, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
            raise UsageError(f"--price {pair}: unknown price {key!r}; {hint}")
        if not re.fullmatch(r" *\d+(\.\d*)?(e-?\d+)? *", value):
            raise UsageError(f"--price {pair}: give a number from 0 on, such as {key}=0.02")
        values[key] = float(value)
    return replace(Prices(), **values)


@dataclass
class StepForecast:
    """The forecast of a step."""

    label: str
    documents: float  # number that enters the step
    cpu: float | None  # seconds; None if no figure is known


@dataclass
class StageForecast:
    """The forecast of a stage, or of work that one process does alone. None means not known."""

    name: str
    single: bool  # True for work that one process does alone
    steps: list[StepForecast]
    documents_in: float
    documents_out: float
    cpu: float | None  # seconds
    wall: float | None  # seconds
    bytes_in: float | None = None  # bytes of files read
    bytes_out: float | None = None  # bytes of files written
    peak_bytes: int | None = None  # memory of one worker
    objects: float = 0.0  # files written
    gets: float = 0.0  # requests to read
    cost: float | None = None  # USD


@dataclass
class Forecast:
    """The forecast of a run, stage by stage."""

    JSON = (
        "recipe", "bytes", "documents", "partitions", "workers", "source", "prices", "stages",
        "missing", "notes", "total=totals",
    )  # fmt: skip
    recipe: str
    bytes: int  # of the input
    documents: float
    partitions: int
    workers: int
    source: str  # the run from which the figures come
    prices: Prices
    stages: list[StageForecast] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # work without a known figure
    notes: list[str] = field(default_factory=list)

    def total(self, name: str) -> float:
        """Return the sum of a `StageForecast` field over all stages; for the field peak_bytes, the
        largest value instead. Unknown values are left out."""
        values = [v for s in self.stages if (v := getattr(s, name)) is not None]
        return max(values, default=0) if name == "peak_bytes" else sum(values)

    @property
    def totals(self) -> dict[str, float]:
        names = ("cpu", "wall", "bytes_out", "peak_bytes", "objects", "gets", "cost")
        return {name: self.total(name) for name in names}

    @property
    def at_once(self) -> int:
        return max(1, min(self.workers, self.partitions))


def forecast(
    plan: RunPlan, sources: list[Figures], workers: int, prices: Prices, as_if: int | None = None
) -> Forecast:
    """Return the forecast of a plan. Each figure comes from the first of `sources` that has it.
    `as_if` is a number of input bytes to assume instead of the plan's own."""
    main, parts = sources[0], len(plan.inputs.partitions)
    size = as_if or sum(f.size for f in plan.inputs.files)
    if as_if:
        parts = math.ceil(size / (plan.recipe.read.partition_bytes or partition_size(size)))
    documents = size / main.input_bytes * (plan.recipe.read.share or 1.0)
    if plan.recipe.read.limit is not None and not as_if:
        documents = min(documents, float(plan.recipe.read.limit))
    result = Forecast(plan.recipe.name, size, documents, parts, workers, main.source, prices)
    formats = {f.format for f in plan.inputs.files}
    if formats and formats != main.formats:
        result.notes.append(
            f"the input is {', '.join(sorted(formats))}, but {', '.join(sorted(main.formats))} was"
            " measured: documents per byte may differ"
        )
    _add_planning(result, sources, plan, as_if)
    documents, stored = result.documents, float(size)
    much = sources[0].stage(plan.stages[0].labels, 0).written * documents if plan.stages else 0.0
    for index, stage in enumerate(plan.stages):
        entry, sketches = _add_stage(result, stage, sources, documents, stored)
        if index == 0:
            ids = parts > Sizes.task_partitions or documents * ID_BYTES > Sizes.id_bytes
            _add_split(result, sources, "settling ids", ids)
        if stage.sketch is not None:
            _add_deciding(result, stage.sketch, sources, entry.documents_out, sketches)
        documents = entry.documents_out
        stored = main.stage(stage.labels, index).stored * documents
    if plan.stages:
        _add_once(result, sources, "assembling", result.documents, single=False)
        result.stages[-1].objects = 2.0 * parts + 2
        result.stages[-1].gets = GETS_A_FILE * parts * (1.0 + len(plan.stages))
        _add_split(result, sources, "report", much > Sizes.report_bytes)
        _add_driving(result, plan.stages)
    result.missing += [f"no figure for product {p.product.label}" for p in plan.products]
    for entry in result.stages:
        entry.cost = _cost(entry, prices)
    return result


def _add_stage(
    result: Forecast, stage: MapStage, sources: list[Figures], documents: float, stored: float
) -> tuple[StageForecast, float | None]:
    figures, parts = sources[0].stage(stage.labels, stage.index), result.partitions
    kept = documents
    steps = [StepForecast("read", documents, figures.read * documents)]
    for step in ([stage.apply] if stage.apply else []) + list[Any](stage.steps):
        of_step = _step_figures(result, step, sources)
        cpu = of_step.cpu * documents if of_step else None
        steps.append(StepForecast(step.label, documents, cpu))
        kept *= of_step.kept if of_step else 1.0
    steps.append(StepForecast("write", documents, figures.write * documents))
    sketches = None
    if stage.sketch is not None:
        label = f"{stage.sketch.label}: sketching"
        of_sketch = next((d for f in sources if (d := f.dedup(stage.sketch))), None)
        sketches = of_sketch.sketch_bytes * kept if of_sketch else None
        result.missing += [] if of_sketch else [f"no figure for {label}"]
        steps.append(StepForecast(label, kept, of_sketch.sketch * kept if of_sketch else None))
    start = figures.partition * parts + figures.worker * result.at_once
    steps.append(StepForecast("start", 0.0, start))
    cpu = sum(s.cpu for s in steps if s.cpu is not None)
    # Files per partition: kept, keys, rejected; ids in the first stage; sketches if any.
    files = 3 + (stage.index == 0) + (stage.sketch is not None)
    entry = StageForecast(
        *(stage.folder_name, False, steps, documents, kept, cpu, cpu / result.at_once),
        bytes_in=stored,
        bytes_out=figures.written * documents + (sketches or 0.0),
        peak_bytes=figures.peak_bytes,
        objects=float(files * parts + (stage.index == 0)),  # and ids.parquet
        gets=float(parts if stage.index == 0 else 2 * GETS_A_FILE * parts),
    )
    result.stages.append(entry)
    return entry, sketches


def _step_figures(result: Forecast, step: Settings, sources: list[Figures]) -> StepFigures | None:
    for source in sources:
        if (figures := source.step(step)) is None:
            continue
        if source is not sources[0]:
            result.notes.append(f"{step.label}: from {source.source}")
        settings = step.model_dump(mode="json")
        if figures.settings is not None and figures.settings != settings:
            other = [f"{k}: {v!r}" for k, v in figures.settings.items() if settings.get(k) != v]
            values = ", ".join(other[:2])[:120]
            result.notes.append(f"{step.label}: measured with other settings ({values})")
        elif figures.settings is None and (code := code_of(step)) is not None:
            result.notes.append(
                f"{step.label}: the figure is that of a function that splits texts into words and"
                f" keeps them; to measure {code}, make a run with --share"
            )
        return figures
    result.missing.append(
        f"no figure for step {step.label}: counted as free and as keeping all documents"
    )
    return None


def _add_deciding(
    result: Forecast,
    step: CorpusStep,
    sources: list[Figures],
    documents: float,
    sketches: float | None,
) -> None:
    name = f"{step.label}: deciding"
    alike = [d for f in sources if (d := f.dedup(step)) is not None]
    timed = next((d for d in alike if d.deciding is not None), None)
    alone: float | None = None
    tasks = 0.0
    if timed is None or timed.deciding is None:
        result.missing.append(f"no figure for {name}")
    else:
        tasks = timed.deciding.seconds(documents) * timed.shared
        alone = timed.deciding.seconds(documents) - tasks
    entry = _add_shared(result, name, documents, alone, tasks)
    entry.bytes_in, entry.objects = sketches, 1.0
    entry.bytes_out = alike[0].decision_bytes * documents if alike else None
    entry.gets = float(GETS_A_FILE * result.partitions)


def _add_shared(
    result: Forecast,
    name: str,
    documents: float,
    alone: float | None,
    tasks: float,
    steps: tuple[str, str] = ("in one process", "in workers"),
) -> StageForecast:
    """Add work of `alone` CPU seconds in the driver and `tasks` in the workers."""
    parts = zip(steps, (alone, tasks), strict=True)
    entries = [StepForecast(label, documents, cpu) for label, cpu in parts if cpu != 0.0]
    cpu = None if alone is None else alone + tasks
    wall = None if alone is None else alone + tasks / result.at_once
    entry = StageForecast(name, not tasks, entries, documents, documents, cpu, wall)
    result.stages.append(entry)
    return entry


def _add_once(
    result: Forecast, sources: list[Figures], name: str, documents: float, single: bool = True
) -> None:
    growth = next((f.once[name] for f in sources if name in f.once), None)
    cpu = growth.seconds(documents) if growth else None
    result.missing += [] if growth else [f"no figure for {name}"]
    wall = cpu if cpu is None or single else cpu / result.at_once
    steps = [StepForecast(name, documents, cpu)]
    result.stages.append(StageForecast(name, single, steps, documents, documents, cpu, wall))


def _add_split(result: Forecast, sources: list[Figures], name: str, much: bool) -> None:
    split = next((f.split[name] for f in sources if name in f.split), None) if much else None
    if split is None:
        _add_once(result, sources, name, result.documents)
        return
    alone, tasks = (seconds * result.documents for seconds in split)
    _add_shared(result, name, result.documents, alone, tasks)


def _add_planning(
    result: Forecast, sources: list[Figures], plan: RunPlan, as_if: int | None
) -> None:
    files, size = len(plan.inputs.files), sum(f.size for f in plan.inputs.files)
    if as_if:
        files = math.ceil(files * as_if / size if size else as_if / ARCHIVE_BYTES)
    formats = {f.format for f in plan.inputs.files} or sources[0].formats
    _add_once(result, sources, "planning", float(files))
    entry = result.stages[-1]
    entry.documents_in = entry.documents_out = entry.steps[0].documents = result.documents
    cut = next((f.cut for f in sources if f.cut is not None), 0.0)
    if entry.cpu is not None and "archive" in formats:
        cuts = max(0, result.partitions - files)
        entry.cpu = entry.wall = entry.steps[0].cpu = entry.cpu + cut * cuts


def _add_driving(result: Forecast, stages: list[MapStage]) -> None:
    parts = result.partitions
    alone = (PLANNED + SETTLED + MAPPED * len(stages) + ASSEMBLED) * parts
    tasks = GATHERED * parts if parts > Sizes.task_partitions else 0.0
    held = HELD + (HELD_DECIDING if any(stage.sketch for stage in stages) else 0)
    steps = ("the driver", "ids, in workers")
    entry = _add_shared(result, "driving", 0.0, alone, tasks, steps)
    entry.single = True
    entry.documents_in = entry.documents_out = result.documents
    entry.bytes_out = float(LEDGER * (len(stages) + 1) + PLAN_FILES) * parts
    entry.peak_bytes = HELD_FIRST + held * parts
    entry.objects = 3.0  # the ledger, two of the plan


def _cost(stage: StageForecast, prices: Prices) -> float | None:
    if stage.cpu is None:
        return None
    return (
        stage.cpu / 3600 * prices.cpu_hour
        + stage.objects / 1000 * prices.put
        + stage.gets / 1000 * prices.get
        + (stage.bytes_out or 0.0) / 1e9 * prices.gb_month * prices.months
    )


NONE = "?"
SMALL = 60.0  # CPU seconds, below which stages are not listed
COLUMNS = ("in", "read", "written", "CPU hours", "RAM", "objects", "wall", "USD")


def text(result: Forecast) -> str:
    prices, total = result.prices, result.total
    documents = f"{_count(result.documents)} document{'' if result.documents == 1 else 's'}"
    head = (
        f"forecast for {format_bytes(result.bytes)} of input, {documents},"
        f" {counted(result.partitions, 'partition')}, {counted(result.workers, 'worker')}"
    )
    if total("cpu") < SMALL and all(s.cpu is not None for s in result.stages):
        short = (
            f"{head}: {_clock(total('cpu'))} of CPU time, {_clock(total('wall'))} in all, at most"
            f" {format_bytes(total('peak_bytes'))} of memory; figures of {result.source}"
        )
        return "\n".join([short, *(f"  {line}" for line in result.missing)])
    rows = []
    for stage in result.stages:
        rows.append(
            [
                _title(stage),
                _count(stage.documents_in),
                _size(stage.bytes_in),
                _size(stage.bytes_out),
                _hours(stage.cpu),
                _size(stage.peak_bytes),
                _count(stage.objects) if stage.objects else "",
                _clock(stage.wall),
                _money(stage.cost),
                "",
            ]
        )
        for step in stage.steps if len(stage.steps) > 1 else ():
            pace = ""
            if step.cpu and step.documents:
                pace = f"{step.cpu / step.documents * 1e3:.3g}"
            rows.append([f"  {step.label}", *[""] * 3, _hours(step.cpu), *[""] * 4, pace])
    totals = ["", "", format_bytes(total("bytes_out")), _hours(total("cpu"))]
    totals += [format_bytes(total("peak_bytes")), _count(total("objects"))]
    rows.append(["total", *totals, _clock(total("wall")), _money(total("cost")), ""])
    lines = [
        f"{head}; figures of {result.source}",
        *table(("", *COLUMNS, "CPU ms per document"), rows),
    ]
    lines += [f"  {line}" for line in result.missing]
    lines += [f"  note: {line}" for line in result.notes]
    lines.append(
        f"  prices in USD: {prices.cpu_hour:g} per CPU hour; {prices.put:g} per 1,000 writes,"
        f" {prices.get:g} per 1,000 reads; {prices.gb_month:g} per GB and month,"
        f" {prices.months:g} months (--price);"
        f" at least {_count(total('gets'))} reads"
    )
    return "\n".join(lines)


def _hours(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    value = seconds / 3600
    return "<0.001" if 0 < value < 0.001 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _money(value: float | None) -> str:
    if value is None:
        return NONE
    return "<0.01" if 0 < value < 0.01 else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _count(number: float) -> str:
    return format_scaled(number).strip()


def _size(value: float | None) -> str:
    return "" if value is None else format_bytes(value)


def _clock(seconds: float | None) -> str:
    return NONE if seconds is None else format_duration(seconds)


def _title(stage: StageForecast) -> str:
    if stage.peak_bytes is not None and not stage.single:
        return f"stage {stage.name[:2]}"
    return stage.name + (" (one process)" if stage.single and len(stage.steps) == 1 else "")
