"""The figures of an experiment: scores by source and over all documents, differences with
intervals, curves, cost; and their output as text for the terminal and as a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from curate.experiment.budget import Budget, Plan
from curate.experiment.corpora import PLACEBO
from curate.experiment.evaluation import TextFigures
from curate.experiment.runs import Machine, RunTask, document_losses, machines_of
from curate.inspect.results import Findings
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import (
    counted,
    format_duration,
    format_percent,
    format_scaled,
    format_short,
)
from llmcurate.base.messages import OPTIONAL
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table
from train.data.shards import read_shards
from train.evaluate.compare import loss_curve, text_curve
from train.evaluate.paired import Difference, Mean, paired_difference
from train.loop.evaluate import Sources


@dataclass(frozen=True)
class Gap(Mean):
    """The difference of a corpus from the first, with its deviations over seeds and documents."""

    deviation_of_seeds: float | None
    deviation_of_documents: float | None

    @classmethod
    def of(cls, difference: Difference) -> Gap:
        return cls(**cast(Any, difference.to_json()))


@dataclass(frozen=True)
class Score:
    """The score of some documents, as given by the models trained on a corpus."""

    documents: int
    bytes: int
    bits_per_byte: Mean
    difference: Gap | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class TextScore(Score):
    """The score of an evaluation text. `sources` has a score per source if there are several."""

    sources: dict[str, Score] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFigures:
    seed: int
    bits_per_byte: float
    last_loss: float
    seconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class TokenizerFigures:
    """The tokenizer of a corpus. `origin` is a phrase that says where it comes from."""

    origin: str
    vocabulary: int
    sha256: str


@dataclass(frozen=True)
class Row:
    """The figures of a corpus or of the placebo. `difference` is the difference from the first
    corpus, None for the first corpus itself."""

    name: str
    steps: int
    tokens: int
    epochs: float
    train_documents: int
    train_tokens: int
    flops: float
    runs: list[RunFigures]
    bits_per_byte: Mean
    texts: dict[str, TextScore]
    curve: list[tuple[int, float]]
    loss_curve: list[tuple[int, float]]
    difference: Gap | None = field(default=None, metadata=OPTIONAL)

    def cells(self) -> list[str]:
        return [
            self.name,
            f"{self.train_documents:,}",
            format_short(self.train_tokens),
            format_short(self.tokens),
            f"{self.epochs:.2f}",
            f"{self.bits_per_byte.mean:.4f}",
            self.difference.text() if self.difference else "",
        ]


@dataclass(frozen=True)
class CorpusRow(Row):
    """The figures of a corpus, with its origin and the `settings` made for this corpus only."""

    inputs: list[str] = field(default_factory=list)
    recipe: str | None = None
    train_bytes: int = 0
    parameters: int = 0
    tokenizer: TokenizerFigures = TokenizerFigures("", 0, "")
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlaceboRow(Row):
    """The figures of the placebo. `holds_zero` is True if 0 is in its difference's interval."""

    holds_zero: bool | None = None


@dataclass(frozen=True)
class Cost:
    runs: int
    seconds: float
    tokens: int
    flops: float

    def __str__(self) -> str:
        return (
            f"{counted(self.runs, 'run')}, {format_duration(self.seconds)} of training in total,"
            f" {counted(self.tokens, 'token')}, {format_scaled(self.flops).strip()}FLOP"
        )


HEAD = ("", "documents", "tokens", "tokens read", "epochs", "bits per byte", "difference")
OVERLAP_HEAD = ("text", "corpus", "drawn", "share a 13-gram", "13-grams shared", "left out")


@dataclass(frozen=True)
class Experiment(Findings):
    """All figures of an experiment. `equal` is the amount that is equal in all runs, `minutes` the
    plan for a time limit, `eval` figures by text, `power` the least detectable difference."""

    NAME = "ablation"
    TEMPLATE = "evaluate/ablation.html"
    SHOWN: ClassVar[dict[str, Any]] = {"head": HEAD, "overlap_head": OVERLAP_HEAD}
    first: str
    tokenizer: TokenizerFigures
    parameters: int
    model: str
    changes: dict[str, Any]
    train: dict[str, Any]
    equal: Budget
    minutes: Plan | None
    seeds: list[int]
    seed: int
    eval: dict[str, TextFigures]
    corpora: list[CorpusRow]
    placebo: PlaceboRow
    power: dict[str, float | str | None]
    cost: Cost
    machines: list[Machine]

    @property
    def rows(self) -> list[Row]:
        return [*self.corpora, self.placebo]

    def verdicts(self) -> list[str]:
        """Return sentences: on each corpus after the first, on the power, and on the placebo."""
        lines = []
        for row in self.corpora[1:]:
            assert row.difference is not None
            sign = row.difference.sign
            verdict = {
                None: "one seed cannot tell a difference from chance, train more seeds;",
                0: f"no difference from {self.first} beyond chance,",
                -1: f"better than {self.first},",
                1: f"worse than {self.first},",
            }[sign]
            lines.append(f"{row.name}: {verdict} {row.difference.text()} bits per byte")
        detectable = self.power["detectable"]
        if isinstance(detectable, float):
            lines.append(
                f"smallest difference that this experiment could detect: {detectable:.3f} bits per"
                " byte (80 % power, 5 % level)"
            )
        return [*lines, self._placebo_line()]

    def _placebo_line(self) -> str:
        assert self.placebo.difference is not None
        shown = f"placebo ({self.first} in another order): {self.placebo.difference.text()}"
        if self.placebo.holds_zero is None:
            return shown
        if self.placebo.holds_zero:
            return f"{shown}; the interval contains 0, as expected"
        return (
            f"{shown}; the interval excludes 0, which chance does in 1 of 20 experiments: do not"
            " trust differences of this size, train more seeds"
        )

    def about(self) -> list[str]:
        """Return lines on the settings that all runs share, and on the cost of the runs."""
        kind, train = self.equal.kind, self.train
        amount = f"{self.equal.amount:,.6g}" if kind == "epochs" else f"{self.equal.amount:,.0f}"
        first, *others = self.corpora
        own = [row for row in others if row.tokenizer.sha256 != first.tokenizer.sha256]
        unequal = " (unequal text, since tokenizers differ)" if own and kind == "tokens" else ""
        lines = [
            f"equal {kind}: {amount} per run{unequal};"
            f" model {self.model} ({format_scaled(first.parameters).strip()} parameters),"
            f" {counted(len(self.seeds), 'seed')} ({', '.join(map(str, self.seeds))}),"
            f" {counted(train['rows'], 'row')} of {train['context']}, learning rate {train['lr']:g}"
        ]
        for row in self.corpora:
            if row.settings:
                settings = ", ".join(f"{name}={value}" for name, value in row.settings.items())
                lines.append(f"{row.name}: {settings}")
        lines.append(f"tokenizer: {first.tokenizer.origin}")
        lines += [
            f"tokenizer of {row.name}: {row.tokenizer.origin},"
            f" {counted(row.tokenizer.vocabulary, 'token')};"
            f" {format_scaled(row.parameters).strip()} parameters"
            for row in own
        ]
        return [*lines, f"cost: {self.cost}", *(f"machine: {each}" for each in self.machines)]

    def differences(self) -> list[tuple[str, float, Sequence[float] | None]]:
        """Return (name, difference, interval) of all rows except the first."""
        rows = [(row.name, row.difference) for row in self.rows if row.difference]
        return [(name, difference.mean, difference.interval) for name, difference in rows]

    def sources(self) -> Iterator[tuple[str, Score, list[Score]]]:
        """Yield (text or source, score by the first corpus, scores by the other corpora)."""
        first, *others = self.rows
        for name, scores in first.texts.items():
            yield name, scores, [row.texts[name] for row in others]
            for source, inner in scores.sources.items():
                yield (
                    f"{name}: {source}",
                    inner,
                    [row.texts[name].sources[source] for row in others],
                )

    def overlap(self) -> list[list[str]]:
        return [
            [
                name,
                corpus,
                f"{fact.drawn:,} of {fact.available:,}",
                f"{shared.documents:,}",
                format_percent(shared.share, 2),
                f"{shared.left_out:,}",
            ]
            for name, fact in self.eval.items()
            for corpus, shared in (fact.overlap or {}).items()
        ]

    def by_source(self) -> list[list[str]]:
        """Return cells per text or source: documents, bits per byte (first corpus), differences."""
        return [
            [name, f"{scores.documents:,}", f"{scores.bits_per_byte.mean:.4f}"]
            + [other.difference.text() for other in others if other.difference]
            for name, scores, others in self.sources()
        ]

    def text(self) -> str:
        names = [row.name for row in self.rows[1:]]
        by_source = [[plain(name, 48), *cells] for name, *cells in self.by_source()]
        parts = [
            *self.about(),
            "",
            *table(HEAD, [row.cells() for row in self.rows]),
            "",
            *table(("by source", "documents", self.first, *names), by_source),
            "",
            *table(OVERLAP_HEAD, self.overlap(), left=(0, 1)),
            "",
            *self.verdicts(),
        ]
        return "\n".join(parts)


@dataclass(frozen=True)
class Scored:
    """The scored documents of all texts, the same for every tokenizer. `sizes` are the bytes of
    each document; `strata` has a number per document for its text and source; `groups` maps (text,)
    to the indexes of documents, and also (text, source) for texts with several sources."""

    texts: tuple[str, ...]
    sizes: np.ndarray
    strata: np.ndarray
    groups: dict[tuple[str, ...], np.ndarray]


def scored_documents(texts: dict[str, str]) -> Scored:
    """Return the documents of {text: folder of shards}, in the order of the texts and shards."""
    sizes, strata = [], []
    groups: dict[tuple[str, ...], np.ndarray] = {}
    first = stratum = 0
    for name, folder in texts.items():
        shards = read_shards(Path(folder))
        assert shards.bytes is not None
        named = shards.sources(list(range(shards.documents)))
        sources = Sources([source or "(none)" for source in named], shards.length, shards.bytes)
        rows = np.arange(first, first + shards.documents)
        groups[(name,)] = rows
        if len(sources.names) > 1:
            for code, source in enumerate(sources.names):
                groups[(name, source)] = rows[sources.codes == code]
        sizes.append(shards.bytes)
        strata.append(sources.codes + stratum)
        first, stratum = first + shards.documents, stratum + len(sources.names)
    return Scored(tuple(texts), np.concatenate(sizes), np.concatenate(strata), groups)


class Rows:
    """The runs of all corpora and of the placebo, compared with the runs of the first corpus."""

    def __init__(self, tasks: Sequence[RunTask], seed: int) -> None:
        self.scored, self.seed = scored_documents(tasks[0].texts), seed
        self.tasks: dict[str, list[RunTask]] = {}
        for task in tasks:
            self.tasks.setdefault(task.name, []).append(task)
        self.nats = {
            name: np.stack([document_losses(task) for task in group])
            for name, group in self.tasks.items()
        }
        self.first = next(iter(self.tasks))

    def difference(self, name: str, rows: np.ndarray | slice = slice(None)) -> Difference:
        """Return the difference of a corpus from the first corpus on the documents in `rows`."""
        return paired_difference(
            self.nats[self.first][:, rows],
            self.nats[name][:, rows],
            self.scored.sizes[rows],
            self.scored.strata[rows],
            seed=self.seed,
        )

    def row(self, name: str) -> Row:
        tasks, folders = self.tasks[name], [task.folder for task in self.tasks[name]]
        summaries = [read_json(folder / "train.json") for folder in folders]
        first, config = summaries[0], summaries[0]["plan"]["train"]
        step = config["rows"] * config["context"]
        pooled = self._bits(name, np.arange(len(self.scored.sizes)))
        runs = [
            RunFigures(
                task.train["seed"],
                bits,
                summary["last_loss"],
                summary["timing"]["seconds"],
                summary["timing"]["tokens_per_second"],
            )
            for task, summary, bits in zip(tasks, summaries, pooled, strict=True)
        ]
        return Row(
            name,
            first["steps"],
            first["steps"] * step,
            float(np.mean([summary["epochs"] for summary in summaries])),
            first["train_documents"],
            first["train_tokens"],
            first["steps"] * step * first["flops_per_token"],
            runs,
            Mean.over(pooled),
            self._texts(name),
            text_curve(folders, list(self.scored.texts), step),
            loss_curve(folders, step),
            None if name == self.first else Gap.of(self.difference(name)),
        )

    def _bits(self, name: str, rows: np.ndarray) -> list[float]:
        total = float(self.scored.sizes[rows].sum())
        bits = self.nats[name][:, rows].sum(axis=1) / math.log(2) / max(total, 1e-300)
        return [float(value) for value in bits]

    def _texts(self, name: str) -> dict[str, TextScore]:
        texts: dict[str, TextScore] = {}
        for (text, *source), rows in self.scored.groups.items():
            figures = (
                len(rows),
                int(self.scored.sizes[rows].sum()),
                Mean.over(self._bits(name, rows)),
                None if name == self.first else Gap.of(self.difference(name, rows)),
            )
            if source:
                texts[text].sources[source[0]] = Score(*figures)
            else:
                texts[text] = TextScore(*figures)
        return texts


def detectable(tasks: Sequence[RunTask], seed: int) -> float | None:
    """Return the smallest difference that can be detected, given the variance of the placebo."""
    return Rows(tasks, seed).difference(PLACEBO).detectable()


def collect(
    tasks: Sequence[RunTask], seed: int, described: Callable[[Row], CorpusRow], **about: Any
) -> Experiment:
    """Return the figures of an experiment from its runs. `described` adds the facts of a corpus to
    its row; `about` has all other fields of the result."""
    rows = Rows(tasks, seed)
    by_name = {name: rows.row(name) for name in rows.tasks}
    every = list(by_name.values())
    placebo = by_name.pop(PLACEBO)
    assert placebo.difference is not None
    sign, seeds = placebo.difference.sign, len(placebo.runs)
    corpora = [described(row) for row in by_name.values()]
    return Experiment(
        first=corpora[0].name,
        tokenizer=corpora[0].tokenizer,
        parameters=corpora[0].parameters,
        seed=seed,
        corpora=corpora,
        placebo=PlaceboRow(**vars(placebo), holds_zero=None if sign is None else not sign),
        power={
            "detectable": rows.difference(PLACEBO).detectable(),
            "power": 0.8,
            "level": 0.05,
            "from": f"the placebo's variance, {seeds} seeds",
        },
        cost=Cost(
            len(tasks),
            sum(run.seconds for row in every for run in row.runs),
            sum(row.tokens * seeds for row in every),
            sum(row.flops * seeds for row in every),
        ),
        machines=machines_of(tasks),
        **about,
    )
