"""run.json: the record of a run, and its summary for the terminal. The driver fills an `Outcome`
during a run. `record` returns what run.json holds of the outcome. `funnel` returns the text for the
terminal: how many documents reach each step and how many it drops."""

from __future__ import annotations

import json
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from curate.corpus.sizes import Sizes
from curate.formats.events import MOST_NAMED
from curate.formats.inputs import InputPlan, empty_files
from curate.formats.kinds import FORMATS
from curate.formats.listing import EMPTY, UNKNOWN
from curate.formats.reading import missing_text_message
from curate.mix.table import MixRecord
from curate.mix.table import text as mix_lines
from curate.run.messages import Counts, CutExample, Place, StageResult
from curate.run.plan import MapStage, RunPlan, stage_folder
from curate.run.worker.traces import smallest
from llmcurate.base.disk.files import part_files, replacing, write_text
from llmcurate.base.disk.process import Host, cores, host, peak_bytes
from llmcurate.base.disk.units import counted, format_bytes, format_percent
from llmcurate.base.errors import RunFailed
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table
from llmcurate.version import __version__

if TYPE_CHECKING:
    from curate.steps.contracts import Settings

LIBRARIES = (
    "pyarrow", "numpy", "numba", "duckdb", "resiliparse", "chardetng_py", "tokenizers",
    "torch",
)  # fmt: skip
FEW = 0.05  # if a smaller share of documents is kept, the summary begins with that fact
NOTABLE_SHARE = 0.05  # share of a sample's bytes below which a script gets no remark
MOST_COMMAND = 2_000  # characters: a shell may have expanded thousands of file names


@dataclass
class Options:
    """The options of a run. They never change the content of the output."""

    workers: int = 0  # 0: one per core
    quiet: bool = False
    engine: str = "local"  # local, ray or slurm
    address: str | None = None  # of a Ray cluster; of this machine, for jobs of Slurm
    sizes: Sizes = field(default_factory=Sizes)  # task and memory sizes of dedup steps
    allow_python: bool = False  # True if Python code in the recipe may run
    slurm: tuple[str, ...] = ()  # options of sbatch, as KEY=VALUE
    restart: bool | None = None  # set OUT aside (True) or refuse it (False); None: neither
    published: bool = False  # True if OUT is a URL, to which results are uploaded

    def count(self) -> int:
        """Return the number of worker processes that run on this machine."""
        if self.engine != "local":  # then `workers` is the number on the cluster
            return min(self.workers or cores(), cores())
        return self.workers or cores()


@dataclass(frozen=True)
class _Named:
    folder: str = ""
    steps: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StageRecord(Counts, _Named):
    """The record of a stage in run.json: sums over its partitions. A product that reads the input
    itself has such a record too."""

    start: list[float] = field(default_factory=list)  # CPU seconds of a worker's start: least, most
    cut_examples: dict[str, list[CutExample]] = field(default_factory=dict)
    corrupt_examples: list[Place] = field(default_factory=list)
    peak_bytes: int = 0
    without_documents: dict[str, int | str] | None = None  # first stage only
    limited: bool | None = None  # True if the input was read in part; first stage only
    renamed: int | None = None  # documents whose ids changed; first stage only
    settle_cpu: float | None = None  # CPU seconds of assigning ids
    decides: str | None = None  # step that decides after the stage
    decided: dict[str, Any] | None = None  # summary of the decisions
    decided_cpu: float | None = None


@dataclass(frozen=True)
class Totals:
    """The counts of a whole run."""

    read: int
    kept: int
    rejected: int
    skipped: int
    skipped_by_type: dict[str, int]
    corrupt: int
    unreadable: int
    passed_over: int
    bad_dates: int
    files_without_documents: int
    left_out: int
    misfits: int
    digests_differing: int
    bytes_in: int
    bytes_out: int
    seconds: float
    kept_ids: str
    by_rule: dict[str, int]  # documents by the rule that dropped them
    nothing_kept: str | None = None  # why the run kept no document
    remark: str | None = None  # on few kept documents, or on a step that dropped most


@dataclass(frozen=True)
class StepAbout:
    """A step in run.json."""

    label: str
    name: str
    about: str  # first paragraph of the step's documentation
    settings: dict[str, Any]

    @classmethod
    def of(cls, step: Settings) -> StepAbout:
        about = (type(step).__doc__ or "").strip().split("\n\n")[0]
        return cls(step.label, step.name, " ".join(about.split()), step.model_dump(mode="json"))


@dataclass(frozen=True)
class InputFileRecord:
    path: str
    format: str
    bytes: int


@dataclass(frozen=True)
class DriverCosts:
    """The CPU seconds that the driver used outside the stages, by kind of work, and its peak
    memory."""

    cpu: dict[str, float]
    peak_bytes: int


@dataclass(frozen=True)
class RunRecord:
    """The content of run.json."""

    recipe: str
    description: str
    plan: str
    started: str
    command: str
    host: Host
    versions: dict[str, str]
    inputs: list[InputFileRecord]
    steps: list[StepAbout]
    partitions: int
    notices: list[str]
    totals: Totals
    stages: list[StageRecord]
    driver: DriverCosts
    products: list[dict[str, Any]]  # records of products, with label, makes, seconds and files
    figures: dict[str, Any] | None = None  # of the report

    @classmethod
    def of(cls, content: dict[str, Any]) -> RunRecord:
        totals = Totals(**content["totals"])
        return cls(**{**content, "totals": totals, "stages": stages_of(content)})


def stages_of(content: dict[str, Any]) -> list[StageRecord]:
    return [StageRecord(**stage) for stage in content.get("stages", ())]


def json_of(value: Any) -> Any:
    """Return a record as JSON values, without fields that are None."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: json_of(inner) for name, inner in vars(value).items() if inner is not None}
    if isinstance(value, dict):
        return {key: json_of(inner) for key, inner in value.items()}
    return [json_of(inner) for inner in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Upload:
    """The figures of an upload to a remote OUT."""

    url: str
    files: int  # number of all files of the run
    put: int  # number of uploaded files
    bytes: int  # size of the uploaded files
    removed: int  # number of files deleted there


@dataclass
class Outcome:
    """The outcome of a run, for run.json, `--json` and the terminal."""

    out: Path
    plan: RunPlan
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    nothing_new: bool = False
    stages: list[StageRecord] = field(default_factory=list)
    products: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    # CPU seconds outside the stages: planning, assembling (workers), the report.
    driver: dict[str, float] = field(default_factory=dict)
    published: Upload | None = None
    notices: list[str] = field(default_factory=list)  # on the finished run
    kept_ids: str = ""  # hash of the set of ids in corpus/; empty without stages

    @property
    def home(self) -> Path:
        return self.plan.home(self.out)

    @property
    def of_input(self) -> StageRecord | None:
        direct = (StageRecord(**p["input"]) for p in self.products if p.get("input"))
        return self.stages[0] if self.stages else next(direct, None)

    def totals(self) -> Totals:
        first = self.of_input or StageRecord()
        stages = self.stages or [first]
        by_rule: Counter[str] = Counter()
        for stage in stages:
            by_rule.update(stage.primary)
        totals = Totals(
            read=first.read,
            kept=stages[-1].kept,
            rejected=sum(stage.rejected for stage in stages),
            skipped=sum(first.skipped.values()),
            skipped_by_type=first.skipped,
            corrupt=first.corrupt,
            unreadable=self.plan.inputs.unreadable,
            passed_over=first.passed_over,
            bad_dates=first.bad_dates,
            files_without_documents=int((first.without_documents or {}).get("files", 0)),
            left_out=sum(first.left_out.values()),
            misfits=sum(first.misfits.values()),
            digests_differing=sum(first.digests_differing.values()),
            bytes_in=first.bytes_in,
            bytes_out=stages[-1].bytes_out,
            seconds=round(self.seconds, 3),
            kept_ids=self.kept_ids,
            by_rule=dict(sorted(by_rule.items(), key=lambda item: (-item[1], item[0]))),
        )
        if self.of_input is None:
            return totals
        if not totals.kept:
            return replace(totals, nothing_kept=self._why_nothing(totals, first))
        return replace(totals, remark=self._remark(totals))

    @property
    def read_nothing(self) -> bool:
        return self.of_input is not None and not self.of_input.read

    def _why_nothing(self, totals: Totals, of_input: StageRecord) -> str:
        if not totals.read:
            places = counted(totals.corrupt, "place")
            reasons = [
                f"{places} cannot be read, first {first['file']}: {first['what']}"
                for first in of_input.corrupt_examples[:1]
            ]
            if totals.passed_over:
                reasons.append(f"read.share passed over {counted(totals.passed_over, 'document')}")
            if totals.skipped:
                reasons.append(f"{counted(totals.skipped, 'record')} of other types were skipped")
            return f"nothing was read: {'; '.join(reasons) or 'the files hold no document'}"
        rules = [next(iter(row.rules)) for row in self._by_dropped()[:1] if row.step == "read"]
        line = (
            missing_text_message(self.plan.inputs, self.plan.recipe.read)
            if rules == ["no_text"]
            else None
        )
        return f"nothing was kept: {line or self._most_dropped(totals.read)}"

    def _remark(self, totals: Totals) -> str | None:
        if totals.kept < FEW * totals.read:
            kept = f"{totals.kept:,} of {counted(totals.read, 'document')}"
            return f"few were kept, {kept}: {self._most_dropped(totals.read)}"
        for row in self._by_dropped()[:1]:
            if 2 * row.dropped >= totals.read:
                share = format_percent(row.dropped / totals.read, 0)
                return f"{row.step} dropped {share} of all documents{self._language(totals.read)}"
        return None

    def _by_dropped(self) -> list[Row]:
        stages = self.stages or [self.of_input or StageRecord()]
        return sorted(funnel_rows(stages), key=lambda row: -row.dropped)

    def _most_dropped(self, read: int) -> str:
        parts = (
            f"{row.step} dropped {row.dropped:,} of {read:,} ({reasons(row, 3, cuts=False)})"
            for row in self._by_dropped()[:3]
            if row.dropped
        )
        return "; ".join(parts) + self._language(read)

    def _language(self, read: int) -> str:
        """Return text on languages if a language step dropped more documents than any other step,
        else "". If more than half of the `read` documents were dropped because they are in one
        language, the text says that the input is mostly in this language. In all
        other cases, the text gives the number of dropped documents for each of the three languages
        with the most."""
        step = next((row.step for row in self._by_dropped()), "")
        if step.partition("#")[0] != "language":
            return ""
        counts: Counter[str] = Counter()
        for path in part_files(self.out / "rejected"):
            dropped = [("step", "==", step), ("rule", "==", "language")]
            table = pq.read_table(path, columns=["lang"], filters=dropped)
            counts.update(filter(None, table["lang"].to_pylist()))
        most = sorted(counts, key=lambda lang: (-counts[lang], lang))
        if most and 2 * counts[most[0]] > read:
            return f"; the input is mostly {most[0]}"
        named = ", ".join(f"{lang} {counts[lang]:,}" for lang in most[:3])
        more = f" and {len(most) - 3} more" if most[3:] else ""
        return f"; by language: {named}{more}" if named else ""

    def paths(self) -> dict[str, str]:
        at = self.published.url if self.published else str(self.out)
        records = self.home.relative_to(self.out) if self.home != self.out else Path()
        names = [(records / name).as_posix() for name in ("run.json", "report.html")]
        names += ["corpus", "rejected", "decisions.parquet"]
        paths = {Path(n).stem: f"{at}/{n}" for n in names if (self.out / n).exists()}
        for stage in self.plan.stages:
            for name in stage.sketch.leaves() if stage.sketch else ():
                paths[name.split(".")[0]] = f"{at}/{name}"
        for product in self.products:
            if product["makes"] == "corpus":
                paths[product["folder"]] = f"{at}/{product['folder']}"
            else:
                paths[product["makes"]] = at
        return paths


_NUMBERS = [f.name for f in fields(Counts) if f.default is not MISSING]
_BY_KEY = [f.name for f in fields(Counts) if f.default is MISSING]
_SORTED = ("skipped", "primary", "reasons", "cut", "cut_bytes", "seconds", "cpu", "written")


def sum_up(stage: MapStage, inputs: InputPlan, results: Iterable[StageResult]) -> StageRecord:
    """Return the record of a stage: the sums over its partitions' results, given in order. Memory
    holds one result at a time. Raises RunFailed if a partition or documents are missing."""
    numbers: dict[str, float] = dict.fromkeys(_NUMBERS, 0)
    by_key: dict[str, dict[str, float]] = {name: {} for name in _BY_KEY}
    documents: list[list[int]] = []  # per slice, if the stage reads the input
    cuts: dict[str, list[CutExample]] = {}
    corrupt: list[Place] = []
    starts: list[float] = []  # least and largest
    peak, count, parts = 0, 0, len(inputs.partitions)
    for r in results:
        count += 1
        for name in _NUMBERS:
            numbers[name] += getattr(r, name)
        for name, total in by_key.items():
            for key, value in getattr(r, name).items():
                total[key] = total.get(key, 0) + value
        for rule, examples in r.cut_examples.items():
            cuts[rule] = smallest([*cuts.get(rule, []), *examples])
        if len(corrupt) < MOST_NAMED:
            corrupt += r.corrupt_examples
        documents += [r.documents] if stage.index == 0 else []
        start = r.cpu["start"]
        starts = [min(start, *starts[:1]), max(start, *starts[1:])] if starts else [start] * 2
        peak = max(peak, r.peak_bytes)
    if count != parts:
        raise RunFailed(
            f"stage {stage.folder_name}: of {counted(parts, 'partition')} {count} are recorded"
        )
    if numbers["read"] != numbers["kept"] + numbers["rejected"]:
        raise RunFailed(f"stage {stage.folder_name}: read is not kept + rejected")
    for name in _SORTED:
        by_key[name] = {k: round(v, 3) for k, v in sorted(by_key[name].items())}
    counts: Any = {**numbers, **by_key, "compiled": round(numbers["compiled"], 3)}
    return StageRecord(
        stage.folder_name,
        stage.labels,
        **counts,
        start=starts or [0.0, 0.0],
        cut_examples=dict(sorted(cuts.items())),
        corrupt_examples=corrupt[:MOST_NAMED],
        peak_bytes=peak,
        without_documents=inputs.without_documents(documents) if stage.index == 0 else None,
    )


@cache
def _versions() -> dict[str, str]:
    versions = {"llmcurate": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def record(outcome: Outcome) -> RunRecord:
    plan = outcome.plan
    return RunRecord(
        recipe=plan.recipe.name,
        description=plan.recipe.description,
        plan=plan.digest,
        started=f"{outcome.started:%Y-%m-%dT%H:%M:%SZ}",
        command=command_line(),
        host=host(),
        versions=_versions(),
        inputs=[InputFileRecord(f.path, f.format, f.size) for f in plan.inputs.files],
        steps=[StepAbout.of(step) for step in plan.recipe.steps],
        partitions=len(plan.inputs.partitions),
        notices=[
            *plan.inputs.notices,
            *(n for s in plan.recipe.steps for n in s.notes()),
            *(n for s in outcome.stages for n in (s.decided or {}).get("notices", ())),
            *reading_notices(outcome),
            *outcome.notices,
        ],
        totals=outcome.totals(),
        stages=outcome.stages,
        driver=driver_costs(outcome),
        products=outcome.products,
    )


# Settings that limit the size of a document, and the rules of the readers that apply them.
_TOO_LARGE = {
    "max_record_bytes": ("record_too_large", "line_too_long"),
    "max_payload_bytes": ("payload_too_large",),
}


def reading_notices(outcome: Outcome) -> list[str]:
    """Return notices on unreadable input, on values of input columns that were omitted or moved to
    the column `extra`, and on documents that differ from their digest."""
    figures, read = outcome.of_input or StageRecord(), outcome.plan.recipe.read
    notices = []
    if not outcome.plan.stages and (places := figures.corrupt):  # else the funnel counts them
        notices.append(f"{counted(places, 'place')} of the input not read: see corrupt.jsonl")
    notices += empty_files(figures.without_documents)
    for setting, rules in _TOO_LARGE.items() if outcome.plan.stages else ():
        if count := sum(figures.primary.get(f"read.{rule}", 0) for rule in rules):
            limit = format_bytes(getattr(read, setting))
            notices.append(
                f"{counted(count, 'document')} rejected, larger than {limit}: a higher"
                f" read.{setting} lets them in"
            )
    if left_out := figures.left_out:
        notices.append(
            f"{counted(sum(left_out.values()), 'value')} of carried columns left out"
            f" ({_by_column(left_out)}):"
            f" a document may carry {format_bytes(read.max_carried_bytes)}"
            " (read.max_carried_bytes), and a parquet page must fit into memory"
        )
    if misfits := figures.misfits:
        notices.append(
            f"{counted(sum(misfits.values()), 'value')} of carried columns kept in `extra`"
            f" ({_by_column(misfits)}): they are of another type than their column"
        )
    if differing := figures.digests_differing:
        files = sorted(differing.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{name} {count:,}" for name, count in files[:5])
        dropped = read.digests == "drop"
        fate = (
            "they were rejected" if dropped else "they were kept (read.digests=drop rejects them)"
        )
        notices.append(
            f"{counted(sum(differing.values()), 'document')} of"
            f" {figures.digests_compared:,} that were compared differ from the digest of their"
            f" record, in {counted(len(files), 'file')} ({named}); {fate}"
        )
    return notices


def _by_column(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:5])


def command_line() -> str:
    """Return the command that started this process, quoted for a shell, without passwords in URLs;
    empty if another program than llmcurate makes the run."""
    program = Path(sys.argv[0])
    if program.stem != "llmcurate" and program.parts[-3:] != ("curate", "cli", "app.py"):
        return ""
    command = shlex.join(["llmcurate", *sys.argv[1:]])
    command = re.sub(r"(://)[^/@\s']*@", r"\1...@", command)
    return command if len(command) <= MOST_COMMAND else f"{command[:MOST_COMMAND]}\u2026"


def driver_costs(outcome: Outcome) -> DriverCosts:
    spent = {"planning": outcome.plan.cpu, **outcome.driver}
    return DriverCosts({k: round(v, 3) for k, v in spent.items()}, peak_bytes())


def write_corrupt(outcome: Outcome) -> None:
    """Write OUT/corrupt.jsonl, a list of unreadable places in the input. The first
    hundred places of a partition have an entry each. The further places of the partition have one
    entry per file: the first of these places in the file, and how many there are."""
    target = outcome.out / "corrupt.jsonl"
    if not outcome.plan.stages:
        return  # written by the product that read the input
    if not outcome.stages[0].corrupt:
        target.unlink(missing_ok=True)
        return
    folder = stage_folder(outcome.out, outcome.plan.stages[0].folder_name)
    with replacing(target) as aside, open(aside, "w", encoding="utf-8") as f:
        for path in part_files(folder, ".corrupt"):
            for batch in pq.ParquetFile(path).iter_batches():
                for row in batch.to_pylist():
                    f.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_record(path: Path, content: RunRecord) -> None:
    text = json.dumps(json_of(content), indent=1, ensure_ascii=False)
    # File names may hold bytes that are not UTF-8.
    write_text(path, text.encode("utf-8", "replace").decode("utf-8") + "\n")


def read_record(out: Path) -> dict[str, Any]:
    """Return the content of OUT's run.json. Raises RunFailed if the file is damaged."""
    path = out / "run.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        data = None
    if not isinstance(data, dict) or not {"stages", "products", "totals"} <= data.keys():
        raise RunFailed(f"{path} is damaged: repeat the command of that run, which writes it again")
    return data


@dataclass(frozen=True)
class Row:
    """A step's row in the funnel, the table of how many documents each step gets and drops."""

    step: str
    before: int
    dropped: int  # documents whose first reason is from this step
    rules: dict[str, int]  # dropped documents by rule
    cut: dict[str, int]  # passages cut, by rule
    cut_bytes: int
    seconds: float
    text_in: int | None = None  # bytes of text that the step got
    payload_in: int = 0  # bytes of raw pages that the step got without text
    text_out: int | None = None  # bytes of text that the step kept
    worked: int = 0  # bytes of text and raw pages, with those of documents dropped before the step

    @property
    def after(self) -> int:
        return self.before - self.dropped


def funnel_rows(stages: Sequence[StageRecord]) -> list[Row]:
    """Return the rows of the funnel, one per step. The reader and the engine have a row only if
    they dropped documents."""
    steps: list[Row] = []
    for stage in stages:
        documents = stage.read
        for label in ("read", *stage.steps, "engine"):
            rules = _of_step(stage.primary, label)
            if label in ("read", "engine") and not rules:
                continue
            dropped = sum(rules.values())
            row = Row(
                label,
                documents,
                dropped,
                rules,
                _of_step(stage.cut, label),
                sum(_of_step(stage.cut_bytes, label).values()),
                stage.seconds.get(label, 0.0),
                stage.text_in.get(label),
                stage.payload_in.get(label, 0),
                stage.text_out.get(label),
                stage.worked.get(label, 0),
            )
            steps.append(row)
            documents -= dropped
    return steps


def _of_step(counts: dict[str, int], label: str) -> dict[str, int]:
    of_step = {k[len(label) + 1 :]: int(v) for k, v in counts.items() if k.startswith(label + ".")}
    return dict(sorted(of_step.items(), key=lambda item: (-item[1], item[0])))


def reasons(row: Row, most: int, cuts: bool = True) -> str:
    """Return a text with a step's `most` most frequent reasons and, if `cuts`, how much it cut."""
    parts = ", ".join(f"{rule} {n:,}" for rule, n in list(row.rules.items())[:most])
    if len(row.rules) > most:
        parts += f" and {len(row.rules) - most} more"
    cut = f"cut {format_bytes(row.cut_bytes)} of text" if row.cut_bytes and cuts else ""
    return "; ".join(filter(None, (parts, cut)))


def funnel(record: RunRecord) -> str:
    """Return the summary for the terminal: documents per step, kept documents, most frequent rules,
    unusual findings."""
    t = record.totals
    by_type = sorted(t.skipped_by_type.items(), key=lambda pair: (-pair[1], pair[0]))
    skipped = [f"{n} {k}" for k, n in by_type]
    beside = f", {t.unreadable} unreadable" if t.unreadable else ""
    if t.passed_over:
        beside += f", {counted(t.passed_over, 'document')} passed over (read.share)"
    if t.bad_dates:
        beside += f", {counted(t.bad_dates, 'date')} that cannot be read"
    few = t.kept < FEW * t.read
    lines = [first] if (first := t.nothing_kept or (few and t.remark)) else []
    rules = ", ".join(f"{k.removeprefix('read.')} {n}" for k, n in t.by_rule.items())
    refused = f", {t.rejected} refused ({rules})" if t.rejected and not record.stages else ""
    if record.stages or t.read:
        lines.append(
            f"read {counted(t.read, 'document')} ({format_bytes(t.bytes_in)}){refused},"
            f" {counted(t.skipped, 'other record')} skipped, {t.corrupt:,} corrupt"
            f"{beside}"
        )
    if record.stages:
        if skipped:
            more = f", {counted(len(skipped) - 9, 'other type')}" if len(skipped) > 9 else ""
            lines.append(f"  skipped: {', '.join(skipped[:9])}{more}")
        lines += table(
            ("step", "in", "dropped", "out", "reasons"),
            [
                [row.step, str(row.before), str(row.dropped), str(row.after), reasons(row, 5)]
                for row in funnel_rows(record.stages)
            ],
            left=(0, 4),
            indent=2,
        )
    passed = [n for n in record.notices if n.startswith("skipped ")]  # one per file
    if passed:
        lines.append(f"note: {_passed_line(passed) if passed[1:] else passed[0]}")
    lines += [f"note: {n}" for n in record.notices if not n.startswith("skipped ")]
    if record.stages:
        lines += _kept_lines(record)
    for product in record.products:
        lines.append(product_line(product))
        if product["makes"] == "corpus":
            lines += mix_lines(MixRecord.from_json(json.dumps(product["mix"])))
        if product["makes"] == "model":
            lines += held_out_lines(product["summary"])
            lines += _best_lines(product["summary"])
    return "\n".join(lines)


def _passed_line(notices: list[str]) -> str:
    """Return one line for notices on skipped files: by reason how many and an example; files of
    unknown format, with their endings, come first, and empty files last."""
    paths: dict[str, list[str]] = {}
    for path, _, reason in (n.removeprefix("skipped ").partition(": ") for n in notices):
        paths.setdefault(reason, []).append(path)
    groups = []
    for reason in sorted(paths, key=lambda r: (r == EMPTY, r != UNKNOWN, -len(paths[r]))):
        found = paths[reason]
        endings = Counter(Path(path).suffix or "no ending" for path in found).most_common(9)
        kinds = f" ({', '.join(f'{count} {ending}' for ending, count in endings)})"
        more = kinds if reason == UNKNOWN else ""
        groups.append(f"{len(found):,}: {reason}{more}, such as {found[0]}")
    known = f"; known are {', '.join(FORMATS)} (docs/inputs.md)" if UNKNOWN in paths else ""
    return f"skipped {counted(len(notices), 'file')}; {'; '.join(groups)}{known}"


def _kept_lines(record: RunRecord) -> list[str]:
    t = record.totals
    lines = []
    if any(stage.decided for stage in record.stages):
        lines.append(f"hash of the kept ids: {t.kept_ids}")
    lines.append(
        f"kept {counted(t.kept, 'document')} ({format_percent(t.kept / max(1, t.read))} of"
        f" {t.read:,}), {format_bytes(t.bytes_out)} of text from {format_bytes(t.bytes_in)}, in"
        f" {t.seconds:.1f} s"
    )
    if t.by_rule:
        rules = [f"{k} {n:,} ({format_percent(n / t.read)})" for k, n in t.by_rule.items()][:3]
        lines.append(f"rules that decide most: {', '.join(rules)}")
    if t.remark and t.kept >= FEW * t.read:
        lines.append(f"look at this: {t.remark}")
    if t.corrupt:
        places = counted(t.corrupt, "place")
        lines.append(f"look at this: {places} of the input could not be read, see corrupt.jsonl")
    return lines


def _best_lines(summary: dict[str, Any]) -> list[str]:
    loss, end = summary.get("best_held_out_loss"), summary["held_out_loss"]
    if loss is None:
        return []
    step = int(summary["best_checkpoint"].rpartition("-")[2])
    used = f"; at the end {end:.3f}\ngenerate, export and evaluate use step {step}"
    at_end = step == summary["steps"]
    return [f"lowest held-out loss: {loss:.3f}, at step {step}{'' if at_end else used}"]


def held_out_lines(summary: dict[str, Any]) -> list[str]:
    lines = []
    for title, scores in (
        ("held-out text of", summary.get("held_out_sources") or {}),
        ("scored whole", eval_scores(summary)),
    ):
        rows = [
            [plain(name, 48), str(s["documents"]), f"{s['loss']:.3f}",
             "-" if s["bits_per_byte"] is None else f"{s['bits_per_byte']:.3f}"]
            for name, s in scores.items()
        ]  # fmt: skip
        lines += table((title, "documents", "loss", "bits/byte"), rows, indent=2) if rows else []
    return lines


def eval_scores(summary: dict[str, Any]) -> dict[str, Any]:
    """Return {name: scores} for the evaluation texts of the setting `eval`. After each text come
    the scores of its sources, named `text: source`."""
    scores = {}
    for name, score in (summary.get("eval") or {}).items():
        scores[name] = score
        scores |= {f"{name}: {source}": value for source, value in score["sources"].items()}
    return scores


def _tokenizer_remark(card: dict[str, Any]) -> list[str]:
    measured = card.get("measured") or {}
    rates = [
        (s["bytes"] / s["tokens"], s["label"])
        for s in measured.get("scripts", ())
        if s["bytes"] >= NOTABLE_SHARE * measured["bytes"] and s["label"] != "Common"
    ]
    if rates and 2 * min(rates)[0] < measured["bytes_a_token"]:
        if min(rates)[1] == "parts of characters":
            return ["look at this: many characters are cut into bytes; a larger --vocab has more"]
        return ["look at this: {1} has only {0:.2f} bytes per token".format(*min(rates))]
    if card.get("warnings"):
        return [f"look at this: {card['warnings'][0]}"]
    return []


FEW_SAMPLES = 20  # one of them is over 5 % of an accuracy


def product_line(product: dict[str, Any]) -> str:
    if product["makes"] == "tokenizer":
        cards = product.get("cards", [product["card"]])
        vocab = ", ".join(f"{c.get('vocab', c.get('vocab_size')):,}" for c in cards)
        line = f"{product['label']}: {vocab} tokens from"
        line += f" {format_bytes(cards[0].get('bytes', 0))} of text"
        figures = [m["bytes_a_token"] for c in cards if (m := c.get("measured"))]
        if any(figures):
            line += f", {', '.join(f'{f:.2f}' for f in figures)} bytes per token on a sample of it"
        return "\n".join([line, *_tokenizer_remark(cards[-1])])
    if product["makes"] == "shards":
        ratio = product["bytes"] / max(1, product["tokens"])
        line = (
            f"{product['label']}: {counted(product['tokens'], 'token')} of"
            f" {counted(product['documents'], 'document')}, {ratio:.2f} bytes per token"
        )
        if val := product.get("val"):
            held = counted(val["documents"], "document")
            line += f"; held out {counted(val['tokens'], 'token')} of {held}"
        return line
    if product["makes"] == "model":
        s = product["summary"]
        bits = s["bits_per_byte"]  # None: the size of the text in bytes is unknown
        held = f"{bits:.2f} bits per byte" if bits is not None else f"loss {s['held_out_loss']:.2f}"
        known = [s[name] for name in ("first_loss", "last_loss") if s[name] is not None]
        losses = " -> ".join(f"{loss:.2f}" for loss in known) or "not recorded"
        terms = s.get("held_out_terms") or {}
        for name, value in terms.items():
            held += f", {name.replace('_', ' ')} {value:.3f}"
        trained = f"{product['label']}: {s['parameters'] / 1e6:.1f} million parameters,"
        trained += f" {counted(s['steps'], 'step')},"
        if terms.keys().isdisjoint(("accuracy", "exact_match")):
            return f"{trained} loss {losses}, {held} on held-out text"
        samples = s["scored_documents"]
        few = " (too few to trust: raise --held-out)" if samples < FEW_SAMPLES else ""
        return (
            f"{trained} training loss {losses}; on {counted(samples, 'held-out sample')}{few}:"
            f" {held}"
        )
    if product["makes"] == "language_model":
        card = product["card"]
        right = card["held_out"]["accuracy"]
        measured = (
            "nothing held out" if right is None else f"{format_percent(right, 2)} of held-out right"
        )
        return (
            f"{product['label']}: {counted(len(card['labels']), 'label')},"
            f" {counted(card['lines']['train'], 'line')},"
            f" {format_bytes(card['bytes'])}, {measured}"
        )
    if product["makes"] == "perplexity_model":
        card = product["card"]
        return (
            f"{product['label']}: {counted(sum(card['counts']), 'n-gram')} to order"
            f" {card['order']} over {counted(card['vocabulary'], 'word')}, from"
            f" {counted(card['tokens'], 'word')},"
            f" {format_bytes(card['bytes'])}"
        )
    if product["makes"] == "corpus":
        return (
            f"{product['label']}: {counted(product['documents'], 'document')}"
            f" ({format_bytes(product['bytes'])} of text) in"
            f" {counted(len(product['files']) - 1, 'part')}"
            f" under {product['folder']}/"
        )
    if product["makes"] == "export":
        return (
            f"{product['label']}: {counted(product['documents'], 'document')} in"
            f" {counted(len(product['files']), 'file')} under jsonl/"
        )
    return f"{product['label']}: done"
