"""The options and the outcome of a run: the counts for run.json, `--json` and the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from curate.corpus.sizes import Sizes
from curate.formats.events import MOST_NAMED
from curate.formats.inputs import InputPlan
from curate.formats.reading import no_text
from curate.run.messages import CutExample, Place, StageResult
from curate.run.plan import MapStage, RunPlan
from curate.run.worker.traces import KINDS, smallest
from llmcurate.base.disk.process import cores
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed


@dataclass
class Options:
    """How to run; nothing here changes a byte of the output."""

    workers: int = 0  # 0: as many as there are cores
    quiet: bool = False
    engine: str = "local"  # where the partitions are worked on: local, ray, slurm
    address: str | None = None  # of a Ray cluster; of this machine, for jobs of Slurm
    sizes: Sizes = field(default_factory=Sizes)  # of the tasks of dedups, and of what they hold
    allow_python: bool = False  # whether functions in files that the recipe names may run
    slurm: tuple[str, ...] = ()  # options of sbatch, as KEY=VALUE
    restart: bool | None = None  # a command's: whether OUT is set aside, not refused
    published: bool = False  # whether OUT is a URL, at which what the run leaves is put

    def count(self) -> int:
        """Worker processes on this machine."""
        if self.engine != "local":  # there, `workers` is of the cluster
            return min(self.workers or cores(), cores())
        return self.workers or cores()


@dataclass
class Outcome:
    """What a run did, for `run.json`, `--json` and the terminal."""

    out: Path
    plan: RunPlan
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    nothing_new: bool = False
    stages: list[dict[str, Any]] = field(default_factory=list)
    products: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    # CPU seconds of what is no stage's: planning, assembling (workers), the report.
    driver: dict[str, float] = field(default_factory=dict)
    published: dict[str, Any] | None = None  # of an OUT that is a URL: it, and what was put there
    notices: list[str] = field(default_factory=list)  # on what was found in the finished run
    kept_ids: str = ""  # a hash of the set of ids in corpus/; empty where no stage wrote one

    @property
    def home(self) -> Path:
        """Where the records of the run are."""
        return self.plan.home(self.out)

    @property
    def of_input(self) -> dict[str, Any]:
        """What read the input: the first stage; without a step on documents a product."""
        direct = (p["input"] for p in self.products if p.get("input"))
        return self.stages[0] if self.stages else next(direct, {})

    def totals(self) -> dict[str, Any]:
        """The counts of the whole run; by_rule counts documents by the rule that dropped them."""
        stages, first = self.stages or [self.of_input], self.of_input
        last = stages[-1]
        by_rule: Counter[str] = Counter()
        for stage in stages:
            by_rule.update(stage.get("primary", {}))
        totals = {
            "read": first.get("read", 0),
            "kept": last.get("kept", 0),
            "rejected": sum(s.get("rejected", 0) for s in stages),
            "skipped": sum(first.get("skipped", {}).values()),
            "skipped_by_type": first.get("skipped", {}),
            "corrupt": first.get("corrupt", 0),
            "unreadable": self.plan.inputs.unreadable,
            "passed_over": first.get("passed_over", 0),
            "bad_dates": first.get("bad_dates", 0),
            "files_without_documents": first.get("without_documents", {}).get("files", 0),
            "left_out": sum(first.get("left_out", {}).values()),
            "digests_differing": sum(first.get("digests_differing", {}).values()),
            "bytes_in": first.get("bytes_in", 0),
            "bytes_out": last.get("bytes_out", 0),
            "seconds": round(self.seconds, 3),
            "kept_ids": self.kept_ids,
            "by_rule": dict(sorted(by_rule.items(), key=lambda item: (-item[1], item[0]))),
        }
        if first and not totals["kept"]:
            totals["nothing_kept"] = self._why_nothing(totals)
        return totals

    @property
    def read_nothing(self) -> bool:
        """Whether the input was read and gave no document."""
        return bool(self.of_input) and not self.of_input.get("read")

    def _why_nothing(self, totals: dict[str, Any]) -> str:
        """The line on a run that kept no document: the steps that dropped most, or the reason why
        there was none to read."""
        read, of_input = totals["read"], self.of_input
        if not read:
            places = counted(totals["corrupt"], "place")
            reasons = [
                f"{places} cannot be read, first {first['file']}: {first['what']}"
                for first in of_input.get("corrupt_examples", [])[:1]
            ]
            if totals["passed_over"]:
                reasons.append(
                    f"read.share passed over {counted(totals['passed_over'], 'document')}"
                )
            if totals["skipped"]:
                reasons.append(
                    f"{counted(totals['skipped'], 'record')} of other types were skipped"
                )
            return f"nothing was read: {'; '.join(reasons) or 'the files hold no document'}"
        labels = {label for stage in self.stages for label in stage["steps"]} | {"read", "engine"}
        by_step: dict[str, Counter[str]] = {}
        for key, count in totals["by_rule"].items():
            step = max((s for s in labels if key.startswith(f"{s}.")), key=len, default=key)
            by_step.setdefault(step, Counter())[key.removeprefix(f"{step}.")] = count
        steps = sorted(by_step, key=lambda step: -by_step[step].total())
        first = by_step["read"].most_common(1) if steps[:1] == ["read"] else []
        read_as = self.plan.recipe.read
        if first and first[0][0] == "no_text" and (line := no_text(self.plan.inputs, read_as)):
            return f"nothing was kept: {line}"
        parts = []
        for step in steps[:3]:
            rules = ", ".join(f"{rule} {n:,}" for rule, n in by_step[step].most_common(3))
            parts.append(f"{step} dropped {by_step[step].total():,} of {read:,} ({rules})")
        return f"nothing was kept: {'; '.join(parts)}"

    def paths(self) -> dict[str, str]:
        """What the run left and where."""
        at = self.published["url"] if self.published else str(self.out)
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


# What the record of a partition counts: numbers, and numbers by key.
_NUMBERS = (
    *("read", "kept", "rejected", "bytes_in", "bytes_out", "corrupt"),
    *("passed_over", "bad_dates", "digests_compared"),
)
_BY_KEY = ("skipped", "primary", "reasons", "cut", "cut_bytes", "seconds", "cpu", "written")
_PLAIN = (*KINDS, "left_out", "digests_differing")


def sum_up(stage: MapStage, inputs: InputPlan, results: Iterable[StageResult]) -> dict[str, Any]:
    """One record of a stage from those of the input's partitions, in their order. Each is merged
    and let go. RunFailed where a partition or documents are missing."""
    numbers: dict[str, int] = dict.fromkeys(_NUMBERS, 0)
    by_key: dict[str, dict[str, Any]] = {name: {} for name in (*_BY_KEY, *_PLAIN)}
    documents: list[list[int]] = []  # of each slice, where the stage reads the input
    cuts: dict[str, list[CutExample]] = {}
    corrupt: list[Place] = []
    starts: list[float] = []  # the least and the largest
    compiled, peak, count, parts = 0.0, 0, 0, len(inputs.partitions)
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
        compiled += r.compiled
        start = r.cpu["start"]
        starts = [min(start, *starts[:1]), max(start, *starts[1:])] if starts else [start] * 2
        peak = max(peak, r.peak_bytes)
    record: dict[str, Any] = {"folder": stage.folder_name, "steps": stage.labels, **numbers}
    for name in _BY_KEY:
        record[name] = {k: round(v, 3) for k, v in sorted(by_key[name].items())}
    for name in _PLAIN:
        record[name] = by_key[name]
    record["compiled"] = round(compiled, 3)
    record["start"] = starts or [0.0, 0.0]
    record["cut_examples"] = {k: [asdict(e) for e in v] for k, v in sorted(cuts.items())}
    record["corrupt_examples"] = corrupt[:MOST_NAMED]
    record["peak_bytes"] = peak
    if stage.index == 0 and count == parts:
        record["without_documents"] = inputs.without_documents(documents)
    if count != parts:
        raise RunFailed(
            f"stage {stage.folder_name}: of {counted(parts, 'partition')} {count} are recorded"
        )
    if record["read"] != record["kept"] + record["rejected"]:
        raise RunFailed(f"stage {stage.folder_name}: read is not kept + rejected")
    return record
