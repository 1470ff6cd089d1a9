"""The search of a mixture from its sources to its figures: `llmcurate mix search`.

OUT/  tokenizer/  shards/NAME/   of sources that are documents, as of `llmcurate ablate`
      eval/NAME/  overlap.json   evaluation texts, without what a source holds
      runs/MIXTURE/seed-0/       a small model by a digest of its mixture, and its nats.npz
      runs/MIXTURE/mixture.json  what the digest is of
      mixture.yaml               a recipe that trains on the optimum
      mixtures.json  mixtures.html
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import yaml

from curate.experiment.ablate import COMMON
from curate.experiment.corpora import (
    ORDER,
    Corpus,
    Sets,
    choose_tokenizers,
    encode_corpus,
    make_tokenizers,
    read_sets,
)
from curate.experiment.evaluation import Fact, draw_text, encode_apart, find_overlap
from curate.experiment.figures import Cost, Gap, Rows
from curate.experiment.runs import Machine, Place, RunTask, Training, machines_of, make_runs
from curate.inspect.results import Findings
from curate.products.eval_texts import are_shards, check_names
from curate.run.records import Options
from llmcurate.base.disk.files import file_digest, make_folder, text_digest, write_text
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import counted, format_percent, format_short
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import OPTIONAL
from llmcurate.base.terminal import say, table
from train.evaluate.paired import paired_difference
from train.lab.mixtures import (
    WHOLE,
    HeldOut,
    Linear,
    Optimum,
    Regression,
    Trees,
    candidates,
    draw_mixtures,
    held_out,
    optimum,
    whole_shares,
)

if TYPE_CHECKING:
    from curate.api.model_settings import MixSearch


@dataclass(frozen=True)
class Source:
    """tokens: that there are to train on; fingerprint: of the shards' content; input: the documents
    that they were made of, or the shards."""

    name: str
    input: str
    shards: str
    tokens: int
    documents: int
    fingerprint: str


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of all sources; origin: the sentence that says where it is from."""

    origin: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Error:
    """A regression on mixtures that it was not fitted to. predicts: whether its ranks are beyond
    chance."""

    rmse: float
    rank_correlation: float
    interval: list[float]
    predicts: bool

    @classmethod
    def of(cls, error: HeldOut) -> Error:
        """As JSON has it."""
        return cls(error.rmse, error.correlation, list(error.interval), error.predicts)


@dataclass(frozen=True)
class Mixture:
    """Shares and epochs by source in the real run, and the target's bits a byte, predicted with
    their interval, and measured where it was trained; intervals: of the optimum's shares."""

    shares: dict[str, float]
    epochs: dict[str, float]
    predicted: float
    interval: list[float]
    measured: float | None = field(default=None, metadata=OPTIONAL)
    intervals: dict[str, list[float]] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Confirmed:
    """The optimum beside the natural mixture, in bits a byte, both trained from these seeds."""

    seeds: list[int]
    natural: float
    optimum: float
    difference: Gap


@dataclass(frozen=True)
class Point:
    """A mixture that was trained, and what each regression predicts of it without its run.
    earlier: in another search."""

    shares: dict[str, float]
    bits_per_byte: float
    texts: dict[str, float]
    predicted: dict[str, float]
    run: str
    earlier: bool


HEAD = ("", "predicted", "interval", "measured")
SOURCE_HEAD = ("source", "tokens", "natural", "optimum", "interval", "epochs", "best sampled")
REGRESSION_HEAD = ("held-out error", "RMSE", "rank correlation", "interval")


@dataclass(frozen=True)
class MixtureSearch(Findings):
    """All figures of a search. encoded: whether the sources were encoded for it; regression: the
    one that chose the optimum; texts: errors of the regressions on each text alone."""

    NAME = "mixtures"
    TEMPLATE = "evaluate/mixtures.html"
    SHOWN: ClassVar[dict[str, Any]] = {
        "source_head": SOURCE_HEAD, "head": ("mixture", *HEAD[1:]), "percent": format_percent,
        "regression_head": ("regression", *REGRESSION_HEAD[1:]),
    }  # fmt: skip
    sources: list[Source]
    seed: int
    tokens: int
    total: float
    max_epochs: float
    out: str
    encoded: bool
    tokenizer: Tokenizer
    model: str
    changes: dict[str, Any]
    train: dict[str, Any]
    eval: dict[str, Fact]
    eval_weights: dict[str, float] | None
    regressions: dict[str, Error]
    regression: str
    texts: dict[str, dict[str, Error]]
    mixtures: dict[str, Mixture]
    confirmed: Confirmed | None
    points: list[Point]
    cost: Cost
    machines: list[Machine]

    def source_rows(self) -> list[list[str]]:
        """A row a source."""
        optimum, intervals = self.mixtures["optimum"], self.mixtures["optimum"].intervals or {}
        return [
            [
                source.name,
                format_short(source.tokens),
                format_percent(self.mixtures["natural"].shares[source.name], 2),
                format_percent(optimum.shares[source.name], 2),
                " to ".join(map(format_percent, intervals[source.name])),
                f"{optimum.epochs[source.name]:.2f}",
                format_percent(self.mixtures["best sampled"].shares[source.name], 2),
            ]
            for source in self.sources
        ]

    def mixture_rows(self) -> list[list[str]]:
        """A row a mixture."""
        return [
            [
                name,
                f"{mixture.predicted:.4f}",
                " to ".join(f"{end:.4f}" for end in mixture.interval),
                "" if mixture.measured is None else f"{mixture.measured:.4f}",
            ]
            for name, mixture in self.mixtures.items()
        ]

    def regression_rows(self) -> list[list[str]]:
        """A row a measure of error of each regression."""
        return [
            [
                name,
                f"{error.rmse:.4f}",
                f"{error.rank_correlation:.3f}",
                " to ".join(f"{end:.3f}" for end in error.interval),
            ]
            for name, error in self.regressions.items()
        ]

    def verdicts(self) -> list[str]:
        """Return whether the regression may be believed, and what the confirmation says."""
        chosen = self.regression
        lines = []
        if not any(error.predicts for error in self.regressions.values()):
            lines.append(
                "neither regression ranks mixtures beyond chance: the interval of its rank"
                " correlation reaches 0; train more runs, or longer ones, before you believe an"
                " optimum"
            )
        elif not self.regressions[chosen].predicts:
            lines.append(
                f"{chosen} does not rank mixtures beyond chance; the other regression does"
            )
        else:
            lines.append(f"the optimum is predicted by the regression {chosen}")
        if self.confirmed is not None:
            said = {None: "; one seed says nothing of chance", 0: ", which is not beyond chance"}
            difference = self.confirmed.difference
            lines.append(
                f"trained from {counted(len(self.confirmed.seeds), 'seed')}: optimum"
                f" {self.confirmed.optimum:.4f}, natural {self.confirmed.natural:.4f} bits a byte,"
                f" difference {difference.text()}{said.get(difference.sign, '')}"
            )
        return lines

    def about(self) -> list[str]:
        """What all runs have in common, and what they cost, in lines."""
        train, earlier = self.train, sum(point.earlier for point in self.points)
        count = counted(len(self.points), "mixture")
        return [
            f"{count}{f' ({earlier} of earlier runs)' if earlier else ''}, seed {self.seed},"
            f" {counted(self.tokens, 'token')} each; model {self.model},"
            f" {counted(train['rows'], 'row')} of {train['context']}, learning rate"
            f" {train['lr']:g}",
            f"for a run of {counted(round(self.total), 'token')}, at most"
            f" {self.max_epochs:g} epochs of a source",
            f"tokenizer: {self.tokenizer.origin}",
            f"cost: {self.cost}",
            *(f"machine: {machine}" for machine in self.machines),
        ]

    def commands(self) -> list[str]:
        """Command lines that take the optimum up."""
        shares = self.mixtures["optimum"].shares
        weights = ",".join(f"{name}={100 * share:.2f}" for name, share in shares.items())
        run = f"llmcurate run {self.out}/mixture.yaml -o model --set pretrain.steps=N"
        if not self.encoded:
            return [f"--weights {weights}", run]
        inputs = " ".join(f"{s.name}={shlex.quote(s.input)}" for s in self.sources)
        mix = (
            f"llmcurate mix {inputs} --weights {weights} --total {self.total:.0f} --max-epochs"
            f" {self.max_epochs:g} --tokenizer {shlex.quote(self.tokenizer.file)} -o mixed"
        )
        return [mix, run]

    def text(self) -> str:
        parts = [
            *self.about(),
            "",
            *table(REGRESSION_HEAD, self.regression_rows()),
            "",
            *table(SOURCE_HEAD, self.source_rows()),
            "",
            *table(("bits a byte", *HEAD[1:]), self.mixture_rows()),
            "",
            *self.verdicts(),
            *self.commands(),
        ]
        return "\n".join(parts)


@dataclass(frozen=True)
class Prepared:
    """sets: of --set; facts: of evaluation texts."""

    sources: list[Source]
    sets: Sets
    tokenizer: Tokenizer
    facts: dict[str, Fact]
    encoded: bool  # from documents, here


def prepare(
    inputs: Mapping[str, str],
    texts: Mapping[str, str],
    out: Path,
    chosen: MixSearch,
    sets: Sequence[str],
    place: Place,
) -> Prepared:
    """Sources in the order of their names. Raises UsageError for what cannot be mixed."""
    check_names(inputs)
    changes = read_sets(sets, [])
    drawn = [
        draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt, changes.read)
        for text in texts.items()
    ]
    ready = [name for name, path in inputs.items() if are_shards(path)]
    if ready and len(ready) < len(inputs):
        other = next(name for name in inputs if name not in ready)
        raise UsageError(
            f"mix search: {ready[0]} is token shards, {other} is not: give shards of one tokenizer,"
            " or documents, for all"
        )
    local = Options(place.workers, place.quiet)
    if ready:
        folders = {name: Path(path) for name, path in inputs.items()}
        tokenizer, origin = _tokenizer_of(folders), "of the shards"
        corpora: list[Corpus] = []
    else:
        corpora = [Corpus(name, (path,)) for name, path in inputs.items()]
        kept = out / "tokenizer" / "tokenizer.json"
        if chosen.tokenizer is None and kept.is_file():
            # Another one would make every run that is there worthless when a source is added.
            asked = read_json(out / "tokenizer" / "tokenizer_card.json")["vocab_asked"]
            if asked != int(changes.values("tokenizer").get("vocab", chosen.vocab)):
                raise UsageError(
                    f"the runs in {out} have a tokenizer of {counted(asked, 'token')}: give"
                    f" --vocab {asked}, or another folder"
                )
            tokenizer, origin = kept, "the one in OUT, trained when the search began"
        else:
            choices = choose_tokenizers(corpora, chosen.tokenizer, chosen.vocab, changes)
            new_tokenizer = make_tokenizers(choices, corpora, out, local)[corpora[0].name]
            tokenizer, origin = new_tokenizer.file, new_tokenizer.origin
        folders = {
            corpus.name: encode_corpus(
                corpus, tokenizer, changes, out / "shards" / corpus.name, ORDER, local
            )
            for corpus in corpora
        }
    sources = [_source(name, inputs[name], folders[name]) for name in sorted(inputs)]
    if corpora:
        say("comparing evaluation texts with the sources by 13-grams", place.quiet)
        digests = {name: file_digest(path / "manifest.json") for name, path in folders.items()}
        shares = find_overlap(drawn, corpora, digests, out, changes.read)
    else:
        say("evaluation texts are not compared with sources, which are token shards", place.quiet)
        shares = {"": {text.name: [0.0] * len(text.documents) for text in drawn}}
    facts = {}
    for text in drawn:
        encoded = {out / "eval" / text.name: tokenizer}
        fact = encode_apart(text, shares, chosen.max_overlap, encoded)
        facts[text.name] = fact if corpora else replace(fact, overlap=None)
    described = Tokenizer(origin, str(tokenizer), file_digest(tokenizer))
    return Prepared(sources, changes, described, facts, not ready)


def _source(name: str, path: str, folder: Path) -> Source:
    from train.data.shards import read_shards

    shards = read_shards(folder)
    tokens = int(shards.length.sum())
    if not tokens:
        raise UsageError(f"mix search: {name}: {folder} holds no tokens")
    return Source(name, path, str(folder), tokens, shards.documents, shards.fingerprint)


def _tokenizer_of(folders: Mapping[str, Path]) -> Path:
    from train.data.shards import read_shards

    opened = {name: read_shards(folder) for name, folder in folders.items()}
    first, *others = opened
    for name in others:
        if opened[name].tokenizer_sha256 != opened[first].tokenizer_sha256:
            raise UsageError(
                f"mix search: {name} and {first} were encoded by different tokenizers: encode them"
                " with one"
            )
    file = opened[first].tokenizer
    if file is None:
        raise UsageError(
            f"mix search: {folders[first]} has no tokenizer.json, which evaluation texts need"
        )
    return file


_FILE = "mixture.json"


def search_mixture(
    inputs: Mapping[str, str],
    texts: dict[str, str],
    weights: Mapping[str, float],
    out: Path,
    chosen: MixSearch,
    sets: Sequence[str],
    place: Place,
) -> MixtureSearch:
    """The figures of the search; runs that are there are not made again. weights: of the texts, by
    their bytes where there are none. Raises UsageError before anything is trained, LlmcurateError
    and RunFailed."""
    import sklearn  # noqa: F401 (missed here, not when all is trained)

    if len(inputs) < 2:
        raise UsageError("mix search: a mixture has two sources or more: give the others too")
    if not texts:
        raise UsageError("mix search: give --on NAME=PATH: texts that all mixtures are scored on")
    if weights and set(weights) != set(texts):
        odd = sorted(set(weights) ^ set(texts))[0]
        raise UsageError(f"mix search: --on-weights and --on: {odd} is in one of them alone")
    make_folder(out)
    prepared = prepare(inputs, texts, out, chosen, sets, place)
    training = Training(
        chosen.model,
        prepared.sets.values("model"),
        chosen.threads,
        {
            **COMMON,
            **chosen.model_dump(include={"rows", "context", "lr", "device"}),
            **prepared.sets.values("pretrain"),
        },
        {name: str(out / "eval" / name) for name in texts},
    )
    return _Search(prepared, training, dict(weights), out, chosen, place).figures()


@dataclass(frozen=True)
class _Point:
    """A mixture that was tried. shares: in 10,000ths by source, those above 0; earlier: from
    another search in OUT, of fewer sources or of more runs."""

    shares: dict[str, int]
    task: RunTask
    earlier: bool = False


@dataclass(frozen=True)
class _Search:
    prepared: Prepared
    training: Training
    weights: dict[str, float]
    out: Path
    chosen: MixSearch
    place: Place

    def __post_init__(self) -> None:
        self._room("--total", self.chosen.total)
        self._room("--tokens", self.chosen.tokens)

    def _room(self, option: str, tokens: float) -> None:
        there = sum(source.tokens for source in self.sources)
        if tokens > self.chosen.max_epochs * there:
            raise UsageError(
                f"mix search: {option} {tokens:,.0f}: the sources have"
                f" {counted(there, 'token')}, which {self.chosen.max_epochs:g} epochs do not"
                " make so many: ask for less, or give more --max-epochs"
            )

    @property
    def sources(self) -> list[Source]:
        """In the order of their names, which decides nothing but the columns."""
        return self.prepared.sources

    @property
    def natural(self) -> np.ndarray:
        """The shares of the sources' tokens."""
        tokens = np.array([source.tokens for source in self.sources], np.float64)
        return tokens / tokens.sum()

    def bounds(self, tokens: float) -> np.ndarray:
        """The largest share of each source in so many tokens."""
        there = np.array([source.tokens for source in self.sources], np.float64)
        return np.minimum(1.0, self.chosen.max_epochs * there / tokens)

    def point(self, counts: Iterable[int], seed: int, part: int) -> _Point:
        """A mixture and its run."""
        named = zip(self.sources, map(int, counts), strict=True)
        taken = [(source, count) for source, count in named if count]
        shares = {source.name: count for source, count in taken}
        sources = [
            {"name": source.name, "shards": source.shards, "weight": float(count)}
            for source, count in taken
        ]
        steps = max(1, round(self.chosen.tokens / self.training.step))
        ends = {"eval_every": steps, "checkpoint_every": steps}
        settings = {**self.training.train, "sources": sources}
        training = replace(self.training, train={**ends, **settings})
        task = training.task(self.digest(shares), None, seed, steps, self.out / "runs", part)
        return _Point(shares, task)

    def identity(self, shares: Mapping[str, int]) -> dict[str, Any]:
        """What the digest of a mixture is of; the texts that it is scored on are not in it."""
        fingerprints = {source.name: source.fingerprint for source in self.sources}
        return {
            "shares": dict(shares),
            "sources": {name: fingerprints[name] for name in shares},
            "model": self.training.model,
            "changes": self.training.changes,
            "train": self.training.train,
            "tokens": self.chosen.tokens,
        }

    def digest(self, shares: Mapping[str, int]) -> str:
        """The name of a mixture's folder."""
        return text_digest(json.dumps(self.identity(shares), sort_keys=True), "xxh3-128")[:16]

    def earlier(self, names: set[str]) -> list[dict[str, int]]:
        """The mixtures of finished runs in OUT that are of these sources, or of some of them, and
        were trained alike; without those of these names."""
        mixtures = []
        for path in sorted((self.out / "runs").glob(f"*/{_FILE}")):
            name = path.parent.name
            try:
                shares = json.loads(path.read_text(encoding="utf-8"))["shares"]
                same = name not in names and self.digest(shares) == name
            except (OSError, ValueError, KeyError, TypeError):
                continue  # of a source that is none of these, or damaged
            if same and (path.parent / f"seed-{self.chosen.seed}" / "train.json").is_file():
                mixtures.append(shares)
        return mixtures

    def points(self) -> list[_Point]:
        """The mixtures that are drawn, and those of earlier runs."""
        chosen = self.chosen
        drawn = draw_mixtures(self.natural, chosen.runs, chosen.seed, self.bounds(chosen.tokens))
        points = [self.point(counts, chosen.seed, part) for part, counts in enumerate(drawn)]
        for shares in self.earlier({point.task.name for point in points}):
            counts = [shares.get(source.name, 0) for source in self.sources]
            point = self.point(counts, chosen.seed, len(points))
            points.append(replace(point, earlier=True))
        return points

    def make(self, points: Sequence[_Point], title: str) -> Rows:
        """Trains and scores what is not there yet."""
        for point in points:
            folder = self.out / "runs" / point.task.name
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / _FILE, json.dumps(self.identity(point.shares), indent=1) + "\n")
        tasks = [point.task for point in points]
        make_runs(tasks, self.place, title)
        return Rows(tasks, self.chosen.seed)

    def figures(self) -> MixtureSearch:
        """All that is reported."""
        points, chosen = self.points(), self.chosen
        earlier = sum(point.earlier for point in points)
        if earlier:
            say(f"{counted(earlier, 'earlier run')} in {self.out} count too", self.place.quiet)
        rows = self.make(points, "mixtures")
        target = Target.of(rows, self.weights)
        shares = np.array(
            [[p.shares.get(source.name, 0) / WHOLE for source in self.sources] for p in points]
        )
        bits = target.bits(rows, points)
        say("fitting regressions", self.place.quiet)
        regressions: list[Regression] = [Linear(), Trees(seed=chosen.seed)]
        errors = [held_out(r, shares, bits, target.weights, chosen.seed) for r in regressions]
        best = int(np.argmin([error.rmse for error in errors]))
        if chosen.regression != "auto":
            best = [r.name for r in regressions].index(chosen.regression)
        scores = bits @ target.weights
        bounds = self.bounds(chosen.total)
        allowed = (shares <= bounds + 1 / WHOLE).all(axis=1)
        lowest = int(np.argmin(np.where(allowed, scores, np.inf)))
        simulated = candidates(self.natural, bounds, chosen.seed)
        others = np.array([self.natural, shares[lowest]])
        fitted = optimum(
            regressions[best], shares, bits, target.weights, simulated, others, chosen.seed
        )
        low, high = np.quantile(fitted.drawn, [0.025, 0.975], axis=0)
        ends = zip(self.sources, low.tolist(), high.tolist(), strict=True)
        intervals = {source.name: [least, most] for source, least, most in ends}
        natural, sampled = (
            replace(self._mixture(of, fitted, nth), measured=float(scores[row]))
            for nth, (of, row) in enumerate(((self.natural, 0), (shares[lowest], lowest)), 1)
        )
        mixtures = {
            "optimum": replace(self._mixture(fitted.shares, fitted, 0), intervals=intervals),
            "natural": natural,
            "best sampled": sampled,
        }
        confirmed, confirming = self._confirm(fitted.shares, target)
        texts = {
            name: {
                r.name: Error.of(held_out(r, shares, bits, weights, chosen.seed))
                for r in regressions
            }
            for name, weights in target.by_text.items()
        }
        taken = [
            {"name": source.name, "shards": source.shards, "weight": int(count)}
            for source, count in zip(self.sources, whole_shares(fitted.shares), strict=True)
            if count
        ]
        pretrain = {"max_epochs": chosen.max_epochs, "sources": taken}
        recipe = {"name": "mixture", "steps": [{"pretrain": pretrain}]}
        write_text(self.out / "mixture.yaml", yaml.safe_dump(recipe, sort_keys=False))
        tasks = [*(point.task for point in points), *confirming]
        summaries = [read_json(task.folder / "train.json") for task in tasks]
        return MixtureSearch(
            self.sources,
            chosen.seed,
            chosen.tokens,
            chosen.total,
            chosen.max_epochs,
            str(self.out),
            self.prepared.encoded,
            self.prepared.tokenizer,
            self.training.model,
            self.training.changes,
            self.training.train,
            self.prepared.facts,
            self.weights or None,
            {r.name: Error.of(e) for r, e in zip(regressions, errors, strict=True)},
            regressions[best].name,
            texts,
            mixtures,
            confirmed,
            [
                Point(
                    self._by_source(row),
                    float(of_run @ target.weights),
                    {name: float(of_run @ w) for name, w in target.by_text.items()},
                    {
                        regression.name: float(error.predictions[number])
                        for regression, error in zip(regressions, errors, strict=True)
                    },
                    point.task.name,
                    point.earlier,
                )
                for number, (point, row, of_run) in enumerate(
                    zip(points, shares, bits, strict=True)
                )
            ],
            Cost(
                len(tasks),
                sum(summary["timing"]["seconds"] for summary in summaries),
                sum(summary["tokens"] for summary in summaries),
                sum(s["tokens"] * s["flops_per_token"] for s in summaries),
            ),
            machines_of(tasks),
        )

    def _by_source(self, shares: np.ndarray) -> dict[str, float]:
        return {s.name: float(v) for s, v in zip(self.sources, shares, strict=True)}

    def _mixture(self, shares: np.ndarray, fitted: Optimum, number: int) -> Mixture:
        interval = np.quantile(fitted.resampled[:, number], [0.025, 0.975]).tolist()
        tokens = np.array([source.tokens for source in self.sources])
        epochs = self._by_source(shares * self.chosen.total / tokens)
        predicted = float(fitted.predicted[number])
        return Mixture(self._by_source(shares), epochs, predicted, interval)

    def _confirm(
        self, shares: np.ndarray, target: Target
    ) -> tuple[Confirmed | None, list[RunTask]]:
        if not self.chosen.confirm:
            return None, []
        whole = whole_shares(self.natural), whole_shares(shares)
        if (whole[0] == whole[1]).all():
            say("the optimum is the natural mixture: nothing to confirm", self.place.quiet)
            return None, []
        first = self.chosen.seed + 1
        seeds = range(first, first + self.chosen.confirm)
        points = [
            self.point(counts, seed, 2 * nth + side)
            for nth, seed in enumerate(seeds)
            for side, counts in enumerate(whole)
        ]
        rows = self.make(points, "confirmation")
        base, other = (rows.nats[point.task.name] * target.scale for point in points[:2])
        difference = paired_difference(
            base,
            other,
            rows.scored.sizes * target.scale,
            rows.scored.strata,
            seed=self.chosen.seed,
        )
        total = float((rows.scored.sizes * target.scale).sum()) * np.log(2)
        natural, optimum = (float(of.sum(axis=1).mean() / total) for of in (base, other))
        confirmed = Confirmed(list(seeds), natural, optimum, Gap.of(difference))
        return confirmed, [point.task for point in points]


@dataclass(frozen=True)
class Target:
    """What is made small. weights: of the documents, whose bits a byte times these add up to the
    target's; by_text: to those of a text; scale: of nats and bytes of each document, where texts
    have weights."""

    weights: np.ndarray
    by_text: dict[str, np.ndarray]
    scale: np.ndarray

    @classmethod
    def of(cls, rows: Rows, weights: Mapping[str, float]) -> Target:
        """The target of these documents. weights: of the texts; without any, by their bytes."""
        sizes = np.maximum(rows.scored.sizes.astype(np.float64), 1e-300)
        by_text = {}
        whole = sum(weights.values())
        scale = np.ones(len(sizes))
        for (text, *source), members in rows.scored.groups.items():
            if source:
                continue
            own = np.zeros(len(sizes))
            own[members] = sizes[members] / sizes[members].sum()
            by_text[text] = own
            if weights:
                share = weights[text] / whole
                scale[members] = share * sizes.sum() / sizes[members].sum()
        return cls(sizes * scale / (sizes * scale).sum(), by_text, scale)

    def bits(self, rows: Rows, points: Sequence[_Point]) -> np.ndarray:
        """Bits a byte of each document, [points, documents]."""
        nats = np.vstack([rows.nats[point.task.name] for point in points])
        bits: np.ndarray = nats / np.log(2) / np.maximum(rows.scored.sizes, 1)
        return bits
