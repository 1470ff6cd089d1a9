"""What a plan would take: CPU hours, memory, bytes moved, objects, time and money by stage.

Linear in the input but for what one process does once (sources.line). Sums take what has a figure;
what has none is listed in `missing`, and is never a zero.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from curate.inspect.forecast.flow import Flow, Line, Unknown, around, through
from curate.inspect.forecast.measured import kind_of
from curate.inspect.forecast.prices import Prices
from curate.inspect.forecast.sources import Group, in_workers, line, sketch_figures, stage_figures
from curate.run.plan import RunPlan

GETS_A_FILE = 2  # of parquet: its footer, its rows; at least
SKETCH = ": sketching"
IN_ONE, IN_WORKERS = "in one process", "in workers"


@dataclass
class StageForecast:
    """A stage, or what one process does (`single`). Seconds are of the CPU, `wall` of the clock;
    bytes_in, bytes_out: files read and written; text_in: bytes of text and pages that enter;
    peak_bytes: of one worker; shuffled: sketches and decisions, written and read; None: no figure.
    """

    name: str
    single: bool
    steps: list[Line]
    documents_in: float
    documents_out: float
    text_in: float
    text_out: float
    cpu: float | None
    wall: float | None
    bytes_in: float | None = None
    bytes_out: float | None = None
    peak_bytes: int | None = None
    shuffled: float | None = None
    objects: float = 0.0
    gets: float = 0.0
    cost: float | None = None


@dataclass
class Forecast:
    """stages in the order of the run; bytes and documents of the input; source: the run that the
    figures are from."""

    recipe: str
    bytes: int
    documents: float
    partitions: int
    workers: int
    source: str
    prices: Prices
    stages: list[StageForecast] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def total(self, name: str) -> float:
        """The sum over stages that have the figure; of peak_bytes the largest."""
        values = [v for s in self.stages if (v := getattr(s, name)) is not None]
        return max(values, default=0) if name == "peak_bytes" else sum(values)

    def dump(self) -> dict[str, Any]:
        """JSON values."""
        names = ("cpu", "wall", "bytes_out", "peak_bytes", "shuffled", "objects", "gets", "cost")
        return {**asdict(self), "total": {n: self.total(n) for n in names}}


def forecast(
    plan: RunPlan, where: list[Group], workers: int, prices: Prices, as_if: int | None = None
) -> Forecast:
    """The forecast of a plan; as_if: bytes of such input in the place of the plan's own."""
    own = sum(f.size for f in plan.inputs.files)
    size = as_if or own
    known = next(run for group in where for run in group)
    factor = size / known.stored
    parts = len(plan.inputs.partitions)
    if as_if:
        parts = math.ceil(size / plan.recipe.read.partition_bytes)
    found = Forecast(
        plan.recipe.name, size, known.documents * factor, parts, workers, known.said, prices
    )
    unknown = Unknown(found.missing, found.notes)
    _say_source(plan, where, unknown)
    flow = Flow(found.documents, known.entering * factor, 0.0)
    _once(found, where, "planning", found.documents, unknown)
    stored: float | None = float(size)
    for index, stage in enumerate(plan.stages):
        before, flow = flow, _stage(found, plan, index, flow, stored, where, unknown)
        if index == 0:
            _once(found, where, "settling ids", before.documents, unknown)
        if stage.sketch is not None:
            _decide(found, plan, index, flow, where, unknown)
        stored = _kept_bytes(stage.labels, index, flow, where)
    if plan.stages:
        _once(found, where, "assembling", found.documents, unknown, single=False)
        found.stages[-1].objects = 2.0 * parts + 2
        found.stages[-1].gets = GETS_A_FILE * parts * (1.0 + len(plan.stages))
        _once(found, where, "report", found.documents, unknown)
    for product in plan.products:
        unknown.none_for(f"product {product.product.label}")
    for stage_forecast in found.stages:
        stage_forecast.cost = _cost(stage_forecast, prices)
    return found


def kinds_of(plan: RunPlan) -> frozenset[str]:
    """Formats of the plan's input."""
    return frozenset(kind_of(f.format, f.path) for f in plan.inputs.files)


def _say_source(plan: RunPlan, where: list[Group], unknown: Unknown) -> None:
    known = next(run for group in where for run in group)
    if known.by_wall:
        unknown.note(
            f"{known.said}: no CPU seconds on record (an older version); seconds of the clock, the"
            " start of workers included, stand for them"
        )
    kinds = kinds_of(plan)
    if kinds and kinds != known.kinds:
        mine, other = ", ".join(sorted(kinds)), ", ".join(sorted(known.kinds))
        unknown.note(
            f"the input is {mine}, what was measured {other}: a byte of one holds more documents"
            " than a byte of the other"
        )


def _stage(
    found: Forecast,
    plan: RunPlan,
    index: int,
    flow: Flow,
    stored: float | None,
    where: list[Group],
    unknown: Unknown,
) -> Flow:
    stage, parts = plan.stages[index], found.partitions
    after, steps, ending = through(stage, flow, where, unknown)
    lines = around(stage, flow.text, ending, where, unknown)
    lines[1:1] = steps
    figures = stage_figures(where, stage.labels, index == 0)
    written = _written(stage.labels, index, flow, after, ending, where)
    sketched = None
    if stage.sketch is not None:
        sketched = _sketching(stage.sketch, after, where, lines, unknown)
    if figures is not None and figures.start is not None:
        least, most = figures.start
        seconds = least * parts + (most - least) * min(found.workers, parts)
        lines.append(Line("start", 0.0, 0.0, seconds))
    else:
        unknown.none_for("the start of workers and partitions")
    if written is None:
        unknown.none_for(f"bytes that stage {index} writes")
    cpu = _sum([one.cpu for one in lines])
    kinds = 3 + (index == 0) + (stage.sketch is not None)  # kept, keys, rejected; ids; sketch
    found.stages.append(
        StageForecast(
            name=stage.folder_name,
            single=False,
            steps=lines,
            documents_in=flow.documents,
            documents_out=after.documents,
            text_in=flow.text,
            text_out=after.text,
            cpu=cpu,
            wall=None if cpu is None else cpu / max(1, min(found.workers, parts)),
            bytes_in=stored,
            bytes_out=None if written is None else written + (sketched or 0.0),
            peak_bytes=figures.peak_bytes if figures else None,
            shuffled=sketched,
            objects=float(kinds * parts),
            gets=float(parts if index == 0 else GETS_A_FILE * 2 * parts),
        )
    )
    return after


def _written(
    labels: list[str],
    index: int,
    before: Flow,
    after: Flow,
    ending: float,
    where: list[Group],
) -> float | None:
    """Bytes of a stage's files but for sketches."""
    f = stage_figures(where, labels, index == 0)
    if f is None:
        return None
    total = 0.0
    gone = max(0.0, ending - after.text)
    terms = [(f.kept, after.text), (f.keys, after.documents), (f.rejected, gone)]
    if index == 0:
        terms.append((f.ids, before.documents))
    for rate, amount in terms:
        if rate is None and amount > 0:
            return None
        total += (rate or 0.0) * amount
    return total


def _kept_bytes(labels: list[str], index: int, flow: Flow, where: list[Group]) -> float | None:
    """What the next stage reads of a stage's files."""
    f = stage_figures(where, labels, index == 0)
    if f is None or f.kept is None:
        return None
    return f.kept * flow.text + (f.keys or 0.0) * flow.documents


def _sketching(
    step: Any, after: Flow, where: list[Group], lines: list[Line], unknown: Unknown
) -> float | None:
    """Adds the time of sketching; returns the bytes of sketches."""
    known = sketch_figures(where, step)
    label = step.label + SKETCH
    if known is None or known[1].cpu is None:
        unknown.none_for(label)
        lines.append(Line(label, after.documents, after.text, None))
        return None
    cost = known[1].cpu
    rate = 1 / cost if cost else None
    lines.append(Line(label, after.documents, after.text, cost * after.text, rate))
    if known[1].stored is None:
        unknown.none_for(f"bytes of {step.label}'s sketches")
        return None
    return known[1].stored * after.documents


def _decide(
    found: Forecast,
    plan: RunPlan,
    index: int,
    flow: Flow,
    where: list[Group],
    unknown: Unknown,
) -> None:
    """What one process does between two stages: sketches to decisions."""
    step = plan.stages[index].sketch
    assert step is not None
    name = f"{step.label}: deciding"
    known_line, share = line(where, name, step), in_workers(where, step)
    here: float | None = None
    tasks = 0.0
    if known_line is None or share is None:
        unknown.none_for(name)
    else:
        whole = known_line[0] + known_line[1] * flow.documents
        here, tasks = whole * (1 - share), whole * share
    steps = [Line(IN_ONE, flow.documents, 0.0, here)]
    if tasks:
        steps.append(Line(IN_WORKERS, flow.documents, 0.0, tasks))
    shared = tasks / max(1, min(found.workers, found.partitions))
    known = sketch_figures(where, step)
    decisions = None
    if known is not None and known[1].decisions is not None:
        decisions = known[1].decisions * flow.documents
    name_before = plan.stages[index].folder_name
    sketches = next(s.shuffled for s in found.stages if s.name == name_before)
    moved = None
    if sketches is not None and decisions is not None:
        moved = sketches + 2 * decisions  # read; written, and read by the next stage
    found.stages.append(
        StageForecast(
            name=name,
            single=len(steps) == 1,
            steps=steps,
            documents_in=flow.documents,
            documents_out=flow.documents,
            text_in=0.0,
            text_out=0.0,
            cpu=None if here is None else here + tasks,
            wall=None if here is None else here + shared,
            bytes_in=sketches,
            bytes_out=decisions,
            shuffled=moved,
            objects=1.0,
            gets=float(GETS_A_FILE * found.partitions),
        )
    )


def _once(
    found: Forecast,
    where: list[Group],
    work: str,
    documents: float,
    unknown: Unknown,
    single: bool = True,
) -> None:
    """Adds what is done once a run."""
    known = line(where, work)
    cpu = None
    if known is None:
        unknown.none_for(work)
    else:
        cpu = known[0] + known[1] * documents
    wall = cpu
    if cpu is not None and not single:
        wall = cpu / max(1, min(found.workers, found.partitions))
    found.stages.append(
        StageForecast(
            name=work,
            single=single,
            steps=[Line(work, documents, 0.0, cpu)],
            documents_in=documents,
            documents_out=documents,
            text_in=0.0,
            text_out=0.0,
            cpu=cpu,
            wall=wall,
        )
    )


def _sum(values: list[float | None]) -> float | None:
    """The sum of those that are known; None where none is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _cost(stage: StageForecast, prices: Prices) -> float | None:
    """USD: computing, requests, and keeping what the stage wrote."""
    if stage.cpu is None:
        return None
    return (
        stage.cpu / 3600 * prices.cpu_hour
        + stage.objects / 1000 * prices.put
        + stage.gets / 1000 * prices.get
        + (stage.bytes_out or 0.0) / 1e9 * prices.gb_month * prices.months
    )
