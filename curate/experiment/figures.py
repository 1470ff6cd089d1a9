"""The results of an experiment in numbers, and their output as text and as a page. A table of
results has one row for each set of models: a corpus, a variant (the first corpus with other
settings) or the placebo (the first corpus in another order). The results are verdicts on the
differences from the first row, scores by source and over all documents, learning curves, cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from curate.experiment.budget import Budget, Plan
from curate.experiment.corpora import PLACEBO
from curate.experiment.evaluation import TextFigures
from curate.experiment.runs import Machine, RunTask, machines_of, values_of
from curate.inspect.results import Findings
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import (
    counted,
    format_duration,
    format_percent,
    format_power,
    format_scaled,
    format_short,
)
from llmcurate.base.messages import OPTIONAL
from llmcurate.base.pages.html import plain
from llmcurate.base.terminal import table
from train.evaluate.paired import Difference, Mean, paired_difference
from train.evaluate.scores import Score, score_of
from train.loop.evaluate import Sources
from train.runs.curves import loss_curve, text_curve


@dataclass(frozen=True)
class Gap(Mean):
    """The difference in score between the first corpus and another corpus, a variant or the
    placebo, with standard deviations over seeds and over documents."""

    deviation_of_seeds: float | None
    deviation_of_documents: float | None

    @classmethod
    def of(cls, difference: Difference) -> Gap:
        return cls(**cast(Any, difference.to_json()))


@dataclass(frozen=True)
class Part:
    """The mean score of a row's models (one per seed) on some of the items, such as documents."""

    items: int
    size: int  # total size of the items, such as their bytes; divides the sum of values
    score: Mean
    difference: Gap | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class TextScore(Part):
    """The score of an evaluation text."""

    sources: dict[str, Part] = field(default_factory=dict)  # scores by source, if there are several


@dataclass(frozen=True)
class RunFigures:
    seed: int
    score: float
    first_loss: float | None
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
    """The figures of a corpus, or of the first corpus with other settings (a variant) or in another
    order (the placebo). `difference` compares with the first row, and is None for the first row."""

    name: str
    steps: int
    tokens: int
    epochs: float
    train_documents: int
    train_tokens: int
    flops: float
    parameters: int
    runs: list[RunFigures]
    tokens_per_second: float
    score: Mean
    texts: dict[str, TextScore]
    curve: list[tuple[int, float]]
    loss_curve: list[tuple[int, float]]
    difference: Gap | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class CorpusRow(Row):
    """The figures of a corpus or variant, with its origin and the `settings` given for it alone."""

    inputs: list[str] = field(default_factory=list)
    recipe: str | None = None
    train_bytes: int = 0
    model: str = ""
    tokenizer: TokenizerFigures = TokenizerFigures("", 0, "")
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlaceboRow(Row):
    """The figures of the placebo, which is the first corpus in another order. `holds_zero` is True
    if the interval of its difference contains 0."""

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


RUN_HEAD = ("documents", "tokens", "tokens read", "epochs", "parameters", "FLOPs", "tokens/s")
OVERLAP_HEAD = ("text", "corpus", "drawn", "share a 13-gram", "13-grams shared", "left out")


@dataclass(frozen=True)
class Experiment(Findings):
    """All figures of an experiment."""

    NAME = "comparison"
    TEMPLATE = "evaluate/comparison.html"
    SHOWN: ClassVar[dict[str, Any]] = {"overlap_head": OVERLAP_HEAD}
    decided: str  # which differences are beyond chance
    score: str  # the score's name or file
    unit: str
    scored: str  # how models are scored
    first: str  # the name of the first row
    tokenizer: TokenizerFigures
    parameters: int
    model: str
    changes: dict[str, Any]
    train: dict[str, Any]
    equal: Budget  # the amount that is equal in all runs
    minutes: Plan | None  # the plan for a time limit
    seeds: list[int]
    seed: int
    eval: dict[str, TextFigures]  # by evaluation text
    corpora: list[CorpusRow]
    placebo: PlaceboRow
    power: dict[str, float | str | None]  # the least detectable difference
    cost: Cost
    machines: list[Machine]

    @property
    def rows(self) -> list[Row]:
        return [*self.corpora, self.placebo]

    @property
    def head(self) -> tuple[str, ...]:
        return ("", self.unit, "difference", *RUN_HEAD)

    def cells(self, row: Row) -> list[str]:
        return [
            row.name,
            self.number(row.score.mean),
            self.gap(row.difference),
            f"{row.train_documents:,}",
            format_short(row.train_tokens),
            format_short(row.tokens),
            f"{row.epochs:.2f}",
            format_scaled(row.parameters).replace("G", "B").strip(),
            format_power(row.flops),
            f"{row.tokens_per_second:,.0f}",
        ]

    @property
    def digits(self) -> int:
        return score_of(self.score).digits

    def number(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def gap(self, difference: Gap | None) -> str:
        return difference.text(self.digits) if difference else ""

    def verdicts(self) -> list[str]:
        """Return sentences: one on all differences, one on each corpus or variant except the first
        corpus, and one on the placebo (the first corpus in another order)."""
        lines = [self.decided]
        for row in self.corpora[1:]:
            assert row.difference is not None
            sign = row.difference.sign
            verdict = {
                None: "one seed cannot tell a difference from chance, train more seeds;",
                0: f"no difference from {self.first} beyond chance,",
                -1: f"better than {self.first},",
                1: f"worse than {self.first},",
            }[sign]
            lines.append(f"{row.name}: {verdict} {self.gap(row.difference)} {self.unit}")
        return [*lines, self._placebo_line()]

    def _placebo_line(self) -> str:
        assert self.placebo.difference is not None
        shown = f"placebo ({self.first} in another order): {self.gap(self.placebo.difference)}"
        if self.placebo.holds_zero is None:
            return shown
        if self.placebo.holds_zero:
            return f"{shown}; the interval contains 0, as expected"
        return (
            f"{shown}; the interval excludes 0, which chance does in 1 of 20 experiments: do not"
            " trust differences of this size, train more seeds"
        )

    def about(self) -> list[str]:
        """Return lines on the score, the settings that runs share, and the cost of the runs."""
        kind, train, seeds = self.equal.kind, self.train, self.seeds
        amount = f"{self.equal.amount:,.6g}" if kind == "epochs" else f"{self.equal.amount:,.0f}"
        first, *others = self.corpora
        own = [row for row in others if row.tokenizer.sha256 != first.tokenizer.sha256]
        unequal = " (unequal text, since tokenizers differ)" if own and kind == "tokens" else ""
        if kind == "flops":
            amount = format_power(self.equal.amount)
        lines = [
            f"scored in {self.unit}{': ' * bool(self.scored)}{self.scored}",
            f"equal {kind}: {amount} per run{unequal};"
            f" model {self.model} ({format_scaled(first.parameters).strip()} parameters),"
            f" {counted(len(seeds), 'seed')} ({', '.join(map(str, seeds))}),"
            f" {counted(train['rows'], 'row')} of {train['context']},"
            f" learning rate {train['lr']:g}",
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
        """Return (name, difference from the first row, interval) for each other row."""
        rows = [(row.name, row.difference) for row in self.rows if row.difference]
        return [(name, difference.mean, difference.interval) for name, difference in rows]

    def sources(self) -> Iterator[tuple[str, Part, list[Part]]]:
        """Yield (text's name, first corpus' score, scores of the other rows of results) for each
        evaluation text. If a text has several sources, a tuple for each of its sources follows."""
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
        """Return a table with a row per evaluation text or source: name, number of items (such as
        documents), score of the first corpus, and differences of the others from that score."""
        return [
            [name, f"{scores.items:,}", self.number(scores.score.mean)]
            + [self.gap(other.difference) for other in others]
            for name, scores, others in self.sources()
        ]

    def text(self) -> str:
        names = [row.name for row in self.rows[1:]]
        by_source = [[plain(name, 48), *cells] for name, *cells in self.by_source()]
        cells = [self.cells(row) for row in self.rows]
        parts = [
            *self.verdicts(),
            "",
            *table(self.head[:3], [row[:3] for row in cells]),
            "",
            *table(("", *RUN_HEAD), [[row[0], *row[3:]] for row in cells]),
            "",
            *table(("by source", "items", self.first, *names), by_source),
            "",
            *(table(OVERLAP_HEAD, self.overlap(), left=(0, 1)) if self.eval else ()),
            *([""] if self.eval else ()),
            *self.about(),
        ]
        return "\n".join(parts)


@dataclass(frozen=True)
class Scored:
    """The items (such as documents) of the evaluation texts on which every model is scored."""

    texts: tuple[str, ...]
    sizes: np.ndarray  # the size of each item, such as its bytes
    strata: np.ndarray  # a number per item for its text and source
    groups: dict[tuple[str, ...], np.ndarray]  # item indexes by (text,), or by (text, source)


def scored_items(texts: dict[str, str], score: Score) -> Scored:
    """Return the items, such as documents, of the evaluation texts `texts` ({name: path}), on which
    models are scored. The items are in the order of the texts, and of the items in each text."""
    sizes, strata = [], []
    groups: dict[tuple[str, ...], np.ndarray] = {}
    first = stratum = 0
    for name, path in texts.items():
        items = score.items(Path(path))
        named = [source or "(none)" for source in items.sources]
        sources = Sources(named, items.sizes, items.sizes)
        rows = np.arange(first, first + len(named))
        groups[(name,)] = rows
        if len(sources.names) > 1:
            for code, source in enumerate(sources.names):
                groups[(name, source)] = rows[sources.codes == code]
        sizes.append(items.sizes)
        strata.append(sources.codes + stratum)
        first, stratum = first + len(named), stratum + len(sources.names)
    return Scored(tuple(texts), np.concatenate(sizes), np.concatenate(strata), groups)


class Rows:
    """The runs of all corpora and variants and of the placebo (the first corpus in another order),
    compared with the runs of the first corpus."""

    def __init__(self, tasks: Sequence[RunTask], seed: int) -> None:
        training = tasks[0].training
        self.score, self.seed = score_of(training.score, training.tuning), seed
        self.scored = scored_items(training.texts, self.score)
        self.tasks: dict[str, list[RunTask]] = {}
        for task in tasks:
            self.tasks.setdefault(task.name, []).append(task)
        self.values = {
            name: np.stack([values_of(task) for task in group])
            for name, group in self.tasks.items()
        }
        self.first = next(iter(self.tasks))

    def difference(self, name: str, rows: np.ndarray | slice = slice(None)) -> Difference:
        """Return the difference in score between the corpus `name` and the first corpus. `rows` are
        the indexes of the items to score, such as documents."""
        return paired_difference(
            self.values[self.first][:, rows],
            self.values[name][:, rows],
            self.scored.sizes[rows],
            self.scored.strata[rows],
            seed=self.seed,
            factor=self.score.factor,
        )

    def row(self, name: str) -> Row:
        tasks, folders = self.tasks[name], [task.folder for task in self.tasks[name]]
        summaries = [read_json(folder / "train.json") for folder in folders]
        first, config = summaries[0], summaries[0]["plan"]["train"]
        step = config["rows"] * config["context"]
        pooled = self._scores(name, np.arange(len(self.scored.sizes)))
        runs = [
            RunFigures(
                task.training.train["seed"],
                score,
                summary["first_loss"],
                summary["last_loss"],
                summary["timing"]["seconds"],
                summary["timing"]["tokens_per_second"],
            )
            for task, summary, score in zip(tasks, summaries, pooled, strict=True)
        ]
        return Row(
            name,
            first["steps"],
            first["steps"] * step,
            float(np.mean([summary["epochs"] for summary in summaries])),
            first["train_documents"],
            first["train_tokens"],
            first["steps"] * step * first["flops_per_token"],
            first["parameters"],
            runs,
            float(np.median([run.tokens_per_second for run in runs])),
            Mean.over(pooled),
            self._texts(name),
            text_curve(folders, list(self.scored.texts), step),
            loss_curve(folders, step),
            None if name == self.first else Gap.of(self.difference(name)),
        )

    def _scores(self, name: str, rows: np.ndarray) -> list[float]:
        total = max(float(self.scored.sizes[rows].sum()), 1e-300)
        scores = self.values[name][:, rows].sum(axis=1) * self.score.factor / total
        return [float(value) for value in scores]

    def _texts(self, name: str) -> dict[str, TextScore]:
        texts: dict[str, TextScore] = {}
        for (text, *source), rows in self.scored.groups.items():
            figures = (
                len(rows),
                int(self.scored.sizes[rows].sum()),
                Mean.over(self._scores(name, rows)),
                None if name == self.first else Gap.of(self.difference(name, rows)),
            )
            if source:
                texts[text].sources[source[0]] = Part(*figures)
            else:
                texts[text] = TextScore(*figures)
        return texts


def detectable(tasks: Sequence[RunTask], seed: int) -> float | None:
    """Return the smallest difference in score that can be detected, or None if unknown. It follows
    from the variance of the difference between the first corpus and its reordered copy
    (placebo)."""
    return Rows(tasks, seed).difference(PLACEBO).detectable()


def _decided(corpora: Sequence[CorpusRow], detectable: float | None, score: Score) -> str:
    """Return a sentence on the differences beyond chance and the smallest detectable one."""
    if detectable is None:
        return "too small to decide: one seed cannot tell a difference from chance; give --seeds 3"
    signs = [row.difference.sign for row in corpora if row.difference]
    power = (
        f"this comparison detects differences of {detectable:.{score.digits - 1}f} {score.unit}"
        " (80 % power, 5 % level)"
    )
    if not any(signs):
        return f"too small to decide: no difference is beyond chance; {power}"
    count = sum(map(bool, signs))
    return f"{count} of {counted(len(signs), 'difference')} beyond chance; {power}"


def collect(
    tasks: Sequence[RunTask], seed: int, described: Callable[[Row], CorpusRow], **about: Any
) -> Experiment:
    """Return the figures of an experiment from its runs. `described` makes a CorpusRow of a Row,
    with facts about the corpus such as its inputs. `about` has all other fields of Experiment."""
    rows = Rows(tasks, seed)
    by_name = {name: rows.row(name) for name in rows.tasks}
    every = list(by_name.values())
    placebo = by_name.pop(PLACEBO)
    assert placebo.difference is not None
    sign, seeds = placebo.difference.sign, len(placebo.runs)
    corpora = [described(row) for row in by_name.values()]
    found = [rows.difference(name).detectable() for name in rows.tasks if name != rows.first]
    detectable = max((value for value in found if value is not None), default=None)
    return Experiment(
        decided=_decided(corpora, detectable, rows.score),
        score=tasks[0].training.score,
        unit=rows.score.unit,
        scored=rows.score.say,
        first=corpora[0].name,
        tokenizer=corpora[0].tokenizer,
        parameters=corpora[0].parameters,
        seed=seed,
        corpora=corpora,
        placebo=PlaceboRow(**vars(placebo), holds_zero=None if sign is None else not sign),
        power={
            "detectable": detectable,
            "power": 0.8,
            "level": 0.05,
            "from": f"the largest variance of a difference, {counted(seeds, 'seed')}",
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
