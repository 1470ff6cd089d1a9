"""The figures of an experiment, from what its runs left: scores by source and pooled, differences
with intervals, curves, cost; its lines on a terminal and its page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from curate.experiment.budget import Budget, Plan
from curate.experiment.corpora import PLACEBO
from curate.experiment.evaluation import Fact
from curate.experiment.runs import Machine, RunTask, machines_of, nats_of
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
    """The difference of a corpus from the first, by seeds and documents."""

    deviation_of_seeds: float | None
    deviation_of_documents: float | None

    @classmethod
    def of(cls, difference: Difference) -> Gap:
        """As JSON has it."""
        return cls(**cast(Any, difference.to_json()))


@dataclass(frozen=True)
class Score:
    """Some documents, scored by the runs of a corpus."""

    documents: int
    bytes: int
    bits_per_byte: Mean
    difference: Gap | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class TextScore(Score):
    """A text, and each of its sources where it has several."""

    sources: dict[str, Score] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFigures:
    """One run of a corpus."""

    seed: int
    bits_per_byte: float
    last_loss: float
    seconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class TokenizerFigures:
    """The tokenizer of a corpus; origin: the sentence that says where it is from."""

    origin: str
    vocabulary: int
    sha256: str


@dataclass(frozen=True)
class Row:
    """A corpus, or the placebo, by its runs; difference: none of the first."""

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
        """Its row of the table."""
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
    """A corpus, with what its runs do not say of it. settings: those that it has for itself."""

    inputs: list[str] = field(default_factory=list)
    recipe: str | None = None
    train_bytes: int = 0
    parameters: int = 0
    tokenizer: TokenizerFigures = TokenizerFigures("", 0, "")
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlaceboRow(Row):
    """The placebo. holds_zero: whether the interval of its difference does."""

    holds_zero: bool | None = None


@dataclass(frozen=True)
class Cost:
    """What all runs took."""

    runs: int
    seconds: float
    tokens: int
    flops: float

    def __str__(self) -> str:
        return (
            f"{counted(self.runs, 'run')}, {format_duration(self.seconds)} of training in sum,"
            f" {counted(self.tokens, 'token')}, {format_scaled(self.flops).strip()}FLOP"
        )


HEAD = ("", "documents", "tokens", "tokens read", "epochs", "bits per byte", "difference")
OVERLAP_HEAD = ("text", "corpus", "drawn", "share a 13-gram", "13-grams shared", "left out")


@dataclass(frozen=True)
class Experiment(Findings):
    """All figures of an experiment. equal: what is equal in all runs;
    minutes: the plan for them; eval: of each text; power: the difference that an experiment like
    this finds."""

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
    eval: dict[str, Fact]
    corpora: list[CorpusRow]
    placebo: PlaceboRow
    power: dict[str, float | str | None]
    cost: Cost
    machines: list[Machine]

    @property
    def rows(self) -> list[Row]:
        """The corpora and the placebo."""
        return [*self.corpora, self.placebo]

    def verdicts(self) -> list[str]:
        """A sentence on each corpus behind the first, on the placebo, and on what could be seen."""
        lines = []
        for row in self.corpora[1:]:
            assert row.difference is not None
            sign = row.difference.sign
            verdict = {
                None: "one seed says nothing of chance, train from more;",
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
            return f"{shown}, which holds 0 as it must"
        return (
            f"{shown}, which leaves out 0: chance does that in 1 of 20 experiments; believe no"
            " difference of this size, train from more seeds"
        )

    def about(self) -> list[str]:
        """What all runs have in common, and what they cost, in lines."""
        kind, train = self.equal.kind, self.train
        amount = f"{self.equal.amount:,.6g}" if kind == "epochs" else f"{self.equal.amount:,.0f}"
        first, *others = self.corpora
        own = [row for row in others if row.tokenizer.sha256 != first.tokenizer.sha256]
        unequal = ", of unequal text, since tokenizers differ" if own and kind == "tokens" else ""
        lines = [
            f"equal {kind}: {amount} a run{unequal};"
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
        """(name, difference, its interval) of all rows but the first."""
        rows = [(row.name, row.difference) for row in self.rows if row.difference]
        return [(name, difference.mean, difference.interval) for name, difference in rows]

    def sources(self) -> Iterator[tuple[str, Score, list[Score]]]:
        """(text or source, scores of the first corpus, scores of the others)."""
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
        """What evaluation texts and corpora have in common."""
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
        """A row a text or source: documents, bits per byte of the first, differences of others."""
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
    """All documents that are scored, of all texts. sizes: bytes; strata: a number of each source of
    each text; groups: {text: [its documents]}, and {(text, source): ...} where it has several. They
    are the same whatever tokenizer encoded them."""

    texts: tuple[str, ...]
    sizes: np.ndarray
    strata: np.ndarray
    groups: dict[tuple[str, ...], np.ndarray]


def scored_documents(texts: dict[str, str]) -> Scored:
    """Of folders of shards, in their order."""
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
    """The runs of each corpus, and of the placebo, beside those of the first one."""

    def __init__(self, tasks: Sequence[RunTask], seed: int) -> None:
        self.scored, self.seed = scored_documents(tasks[0].texts), seed
        self.tasks: dict[str, list[RunTask]] = {}
        for task in tasks:
            self.tasks.setdefault(task.name, []).append(task)
        self.nats = {
            name: np.stack([nats_of(task) for task in group]) for name, group in self.tasks.items()
        }
        self.first = next(iter(self.tasks))

    def difference(self, name: str, rows: np.ndarray | slice = slice(None)) -> Difference:
        """Of some documents: those of a corpus from those of the first."""
        return paired_difference(
            self.nats[self.first][:, rows],
            self.nats[name][:, rows],
            self.scored.sizes[rows],
            self.scored.strata[rows],
            seed=self.seed,
        )

    def row(self, name: str) -> Row:
        """All figures of a corpus, or of the placebo."""
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
    """The least difference that an experiment with the variance of its placebo finds."""
    return Rows(tasks, seed).difference(PLACEBO).detectable()


def collect(
    tasks: Sequence[RunTask], seed: int, described: Callable[[Row], CorpusRow], **about: Any
) -> Experiment:
    """The figures of an experiment from its runs. described: a corpus with what is said of it;
    about: all fields that are of no run."""
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
