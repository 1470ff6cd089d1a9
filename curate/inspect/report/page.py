"""Write report.html and the other records of a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from curate.corpus.sizes import Sizes
from curate.corpus.sketches import Run, run_here
from curate.documents.limits import Limit
from curate.engines.base import cpu_seconds
from curate.inspect.report import documents, duplicates, rules
from curate.inspect.report.documents import LEAST, Kept, OptOuts, Source, Unsure
from curate.inspect.report.duplicates import SIZES, Method
from curate.inspect.report.rules import Example, Rule, RuleFigures
from curate.inspect.report.store import opened
from curate.inspect.results import COMMAND
from curate.mix.table import MixRecord, unit_text
from curate.run.records import (
    Outcome,
    driver_costs,
    eval_scores,
    funnel_rows,
    json_of,
    product_line,
    reasons,
    record,
    stages_of,
    write_corrupt,
    write_record,
)
from curate.steps.profiled import Profiled
from curate.steps.registry import facts
from curate.text.languages import NONE, Chosen
from llmcurate.base.disk.files import write_text
from llmcurate.base.disk.units import (
    counted,
    format_bytes,
    format_count,
    format_duration,
    format_estimate,
)
from llmcurate.base.messages import json_values
from llmcurate.base.pages.html import percent, plain
from llmcurate.base.pages.html import render as render_template


@dataclass
class Figures:
    JSON = (
        "rules.rules", "rules.overlap", "measures=rules.others", "duplicates",
        "freshness?", "opt_outs?", "kept.languages", "kept.domains", "kept.lengths?", "unsure?",
    )  # fmt: skip
    rules: RuleFigures = field(default_factory=RuleFigures)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    duplicates: dict[str, Method] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    unsure: dict[str, Unsure] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)  # warnings about dropped languages and characters
    freshness: list[Source] = field(default_factory=list)
    opt_outs: OptOuts | None = None


def gather(
    out: Path,
    limits: Mapping[str, Limit] = MappingProxyType({}),
    threads: int = 1,
    steps: Sequence[str] = (),
    run: Run = run_here,
    sizes: Sizes = Sizes(),
    judged: Mapping[str, Chosen] = MappingProxyType({}),
) -> Figures:
    """Compute the figures of a finished run from its corpus/, rejected/ and decisions.parquet.

    `limits` maps the names of rules to their limits. `steps` are step labels in the order of the
    run. `judged` maps the label of a step to the step's limits by language (language profiles).
    `threads`, `run` and `sizes` change how the work is divided, not the result. Memory is bounded.
    """
    figures = Figures()
    with opened(out, threads=threads, run=run, group_bytes=sizes.report_bytes) as store:
        if store is None:
            return figures
        figures.kept = documents.gather(store)
        figures.rules = rules.gather(store, limits, figures.kept.main_language)
        figures.examples = rules.gather_examples(store, figures.rules.rules)
        figures.duplicates = duplicates.gather(store)
        figures.unsure = documents.unsure_languages(store)
        figures.lost = [*documents.lost(store, steps, judged), *documents.replaced(store)]
        figures.freshness = documents.freshness_of(store)
        figures.opt_outs = documents.opt_outs(store)
    return figures


# Without a tokenizer: a rule of thumb for English and a vocabulary of some ten thousand tokens.
BYTES_A_TOKEN = 4.0
CHAPTERS = (
    "look", "funnel", "rules", "documents", "cuts", "duplicates", "freshness", "perplexity",
    "measures", "mix", "products", "run",
)  # fmt: skip
MOST_GROUPS = 24  # the largest sources, shown in the matrix of overlaps
# A rule looks wrong if it drops the share MUCH of all documents, or MUCH_ALONE as the only rule.
MUCH, MUCH_ALONE = 0.5, 0.05


@dataclass(frozen=True)
class Look:
    """Something that looks wrong in a run, as one line for the report."""

    line: str
    anchor: str  # section of the report that shows it
    command: str = ""  # a command that shows more, or empty


@dataclass(frozen=True)
class RunPage:
    """The report of a run, made from the run's record and figures."""

    record: dict[str, Any]
    figures: Figures

    def render(self) -> str:
        products = {product["makes"] for product in self.record["products"]}
        decided = [stage["decided"] for stage in self.record["stages"] if stage.get("decided")]
        # Templates are compiled once per process; skip those of empty chapters.
        empty = {
            "cuts": not any(stage["cut"] for stage in self.record["stages"]),
            "duplicates": not (self.figures.duplicates or decided),
            "freshness": not (self.figures.freshness or self.figures.opt_outs),
            "perplexity": not any(d.get("perplexity") for d in decided),
            "mix": "corpus" not in products,
            "products": not products,
            "rules": not self.figures.rules.rules,
        }
        chapters = [name for name in CHAPTERS if not empty.get(name)]
        return self._rendered("report.html", chapters=chapters)

    def chapter(self, name: str) -> str:
        return self._rendered(f"report/{name}.html")

    def _rendered(self, template: str, **more: Any) -> str:
        about = {s["label"]: s["about"] for s in self.record.get("steps", [])}
        ratio, measured = bytes_a_token(self.record)
        return render_template(
            template,
            page=self,
            record=self.record,
            figures=self.figures,
            bytes_a_token=ratio,
            measured=measured,
            least_score=LEAST,
            about={"read": "Refused by the reader.", "engine": "Set aside by the engine."} | about,
            steps=funnel_rows(stages_of(self.record)) if "totals" in self.record else [],
            **FUNCTIONS,
            **more,
        )

    def totals(self) -> list[tuple[str, str]]:
        totals = self.record["totals"]
        time = (format_duration(totals["seconds"]), "from start to end")
        if not totals["read"]:
            return [time]
        ratio, measured = bytes_a_token(self.record)
        tokens = (format_count if measured else format_estimate)(totals["bytes_out"] / ratio)
        return [
            (f"{totals['read']:,}", "documents read"),
            (f"{totals['kept']:,}", f"kept ({percent(totals['kept'] / totals['read'])})"),
            (f"{totals['rejected']:,}", "rejected, each with a reason"),
            (format_bytes(totals["bytes_out"]), "of text kept"),
            (tokens if measured else f"about {tokens}", "tokens"),
            time,
        ]

    def deciding(self) -> list[Rule]:
        """Return the rules that dropped documents; those that dropped most come first."""
        every = self.figures.rules.rules.values()
        return sorted((r for r in every if r.first), key=lambda rule: (-rule.first, rule.name))

    def looks(self) -> list[Look]:
        """Return what looks wrong, the most important first."""
        totals, kept = self.record["totals"], self.figures.kept
        read = totals["read"] or 1
        looks = [
            Look(f"{rule.name} drops {percent(rule.first, read)} of all documents", "deciding")
            for rule in self.deciding()
            if rule.first >= MUCH * read
        ]
        if remark := totals.get("remark"):
            looks = [Look(remark, "funnel")]
        looks += [
            Look(f"none of {counted(gone, 'document')} in {label} is kept", "languages")
            for label, (stays, gone) in kept.languages.items()
            if not stays and gone >= MUCH * read
        ]
        if places := totals["corrupt"]:
            looks.append(
                Look(f"{counted(places, 'stretch')} of the input could not be read", "corrupt")
            )
        for rule in self.figures.rules.rules.values():
            if rule.only >= MUCH_ALONE * read:
                dropped = f"{counted(rule.only, 'document')} ({percent(rule.only, read)})"
                line = f"{rule.name} alone drops {dropped}; try other limits"
                looks.append(Look(line, "rules", "llmcurate whatif OUT"))
        if alone := sum(unsure.alone for unsure in self.figures.unsure.values()):
            line = f"{counted(alone, 'document')} dropped only because their language is unsure"
            looks.append(Look(line, "unsure"))
        return looks

    def notices(self) -> list[str]:
        """Return the run's notices, with those on skipped files at the end."""
        return sorted(self.record["notices"], key=lambda line: line.startswith("skipped "))

    def provenance(self) -> list[tuple[str, str]]:
        host = self.record["host"]
        machine = [f"{host['system']} {host['machine']}", host["processor"]]
        machine += [counted(host["cores"], "core")]
        machine += [f"{format_bytes(host['memory'])} of memory"] if host["memory"] else []
        pairs = [
            ("started", self.record["started"].replace("T", " ").replace("Z", " UTC")),
            ("command", plain(self.record["command"], COMMAND)),
            ("version", f"llmcurate {self.record['versions']['llmcurate']}"),
            ("machine", ", ".join(filter(None, machine))),
        ]
        return [(name, value) for name, value in pairs if value]

    def decision_notes(self) -> list[tuple[str, list[str], dict[str, int], list[Any]]]:
        """Return (step, sentences on its method, {earlier corpus: number of duplicates in it},
        curves to draw) for each dedup that recorded any of these."""
        notes = []
        for stage in self.record["stages"]:
            decided = stage.get("decided") or {}
            curves = [c for c in decided.get("curves", ()) if len(c["x"]) > 1]
            corpora = decided.get("against") or {}
            sentences = list(decided.get("notes", ()))
            if sentences or corpora or curves:
                notes.append((stage.get("decides") or "dedup", sentences, corpora, curves))
        return notes

    def step_times(self) -> list[tuple[str, float, int]]:
        """Return (step, seconds, bytes of text) summed over stages, in the order of the steps."""
        times: dict[str, tuple[float, int]] = {}
        for stage in self.record["stages"]:
            for label, seconds in stage["seconds"].items():
                size = stage.get("worked", {}).get(label, 0)
                before = times.get(label, (0.0, 0))
                times[label] = (before[0] + seconds, before[1] + size)
        steps = [row.step for row in funnel_rows(stages_of(self.record)) if row.seconds]
        order = {label: i for i, label in enumerate(["read", *steps])}
        order |= {f"{step}: deciding": order[step] for step in steps}
        return [
            (label, *times[label])
            for label in sorted(times, key=lambda label: order.get(label, len(order)))
        ]

    def peak_bytes(self) -> int:
        return max((stage.get("peak_bytes", 0) for stage in self.record["stages"]), default=0)

    def corrupt_examples(self) -> list[dict[str, str | int]]:
        products = [p["input"] for p in self.record["products"] if p.get("input")]
        tallies = self.record["stages"][:1] or products
        return [e for tally in tallies[:1] for e in tally.get("corrupt_examples", [])]

    def settings_text(self) -> str:
        steps = [{s["name"]: s["settings"]} for s in self.record.get("steps", [])]
        if not steps:
            return ""
        return yaml.safe_dump(steps, sort_keys=False, allow_unicode=True, width=88)


def bytes_a_token(record: dict[str, Any]) -> tuple[float, bool]:
    """Return the bytes of text per token, and True if they were measured on all text that this run
    encoded. False means a sample or a rule of thumb."""
    products = record.get("products", ())
    for product in products:
        if product["makes"] == "shards" and product.get("tokens"):
            return product["bytes"] / product["tokens"], True
    cards = (product.get("card") or {} for product in products)
    sampled = ((card.get("measured") or {}).get("bytes_a_token") for card in cards)
    return next(filter(None, sampled), BYTES_A_TOKEN), False


def by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def similarity_meaning(method: str) -> str:
    """Return a description of what the similarity of a dedup method measures."""
    known = {name: said for each in facts("similarity").values() for name, said in each.items()}
    kind = method if method in known else method.partition(":")[0]
    return str(known.get(kind, "similarity of duplicates to their partner"))


def size_range(size: int) -> str:
    """Return the cluster sizes from the bound `size` up to the next bound in SIZES, as `5 to 9`."""
    larger = [s for s in SIZES if s > size]
    if not larger:
        return f"{size:,} or more"
    return str(size) if larger[0] == size + 1 else f"{size:,} to {larger[0] - 1:,}"


def mix_of(content: Any) -> MixRecord:
    return MixRecord.from_json(json.dumps(content))


def largest_groups(mix: MixRecord) -> dict[int, int]:
    """Return {row in the matrix of overlaps: number of documents} for the largest sources of a
    mix."""
    assert mix.overlap is not None
    sizes = {row.name: row.documents for row in mix.rows}
    groups = mix.overlap.groups
    order = sorted(range(len(groups)), key=lambda g: (-sizes[groups[g]], groups[g]))
    return {g: sizes[groups[g]] for g in order[:MOST_GROUPS]}


def points(
    metrics: list[dict[str, Any]], key: str, held_out: bool = False
) -> list[tuple[float, float]]:
    """Return (training step, value) pairs of the figure `key`. With `held_out`, return the values
    measured on held-out documents instead of those measured in training."""
    inner = [line.get("held_out") or {} if held_out else line for line in metrics]
    return [
        (line["step"], figures[key])
        for line, figures in zip(metrics, inner, strict=True)
        if is_finite(figures.get(key))
    ]


def expert_shares(loads: list[list[float]]) -> dict[tuple[str, str], float]:
    """Return {(layer, expert): load of the expert / (2 * mean load in its layer)}, so 0.5 is an
    even load, in the middle of a chart from 0 to 1. Layers and experts are counted from 1."""
    return {
        (str(layer), str(expert)): share * len(shares) / 2
        for layer, shares in enumerate(loads, start=1)
        for expert, share in enumerate(shares, start=1)
    }


def is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == value and abs(value) != float("inf")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        by_count, expert_shares, eval_scores, is_finite, product_line, reasons,
        largest_groups, mix_of, points, similarity_meaning, size_range, unit_text,
    )
}  # fmt: skip


def begin_report(
    outcome: Outcome,
    threads: int = 1,
    run: Run = run_here,
    sizes: Sizes = Sizes(),
) -> Callable[[], None]:
    """Compute the report's figures and return a function that writes the report and the records.
    Call that function after the products are made. The parameters are those of `gather`."""
    began = cpu_seconds()
    figures: Figures | None = Figures()
    notices: list[str] = []
    try:
        if outcome.plan.stages:
            steps = outcome.plan.recipe.steps
            # By `step.rule`, each with the full name of its column.
            limits = {
                f"{step.label}.{limit.rule}": replace(limit, column=f"{step.label}.{limit.column}")
                for step in outcome.plan.recipe.document_steps
                for limit in step.limits()
            }
            labels = [step.label for step in steps]
            profiled = [s for s in steps if isinstance(s, Profiled) and s.profile != NONE]
            judged = {step.label: step.chosen for step in profiled}
            figures = gather(outcome.out, limits, threads, labels, run, sizes, judged)
            outcome.notices += figures.lost
    except Exception as error:
        figures = None
        notices = [f"the figures of the report could not be computed: {_line(error)}"]
    outcome.driver["report"] = cpu_seconds() - began
    return partial(_write_records, outcome, figures, notices)


def _write_records(outcome: Outcome, figures: Figures | None, notices: list[str]) -> None:
    began = cpu_seconds()
    resolved = outcome.plan.recipe.resolved()
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)
    write_text(outcome.home / "recipe.yaml", text)
    write_corrupt(outcome)
    content = record(outcome)
    content.notices.extend(notices)
    content = replace(content, figures=json_values(figures) if figures is not None else None)
    try:
        html = RunPage(json_of(content), figures or Figures()).render()
    except Exception as error:
        content.notices.append(f"the report could not be written: {_line(error)}")
        html = render_template("report_failed.html", record=json_of(content))
    outcome.driver["report"] += cpu_seconds() - began
    write_record(outcome.home / "run.json", replace(content, driver=driver_costs(outcome)))
    write_text(outcome.home / "report.html", html)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
