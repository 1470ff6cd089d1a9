"""The search for a mixture of sources: `llmcurate mix search`.

OUT/  tokenizer/  shards/NAME/   sources, encoded as by `llmcurate compare`
      eval/NAME/  overlap.json   evaluation texts, without text that is in a source
      runs/MIXTURE/seed-0/       a small model, and its scores.npz; MIXTURE: a digest of the mixture
      runs/MIXTURE/mixture.json  the content from which the digest is computed
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

from curate.experiment.compare import COMMON
from curate.experiment.corpora import (
    ORDER,
    Corpus,
    Sets,
    choose_tokenizers,
    encode_corpus,
    make_tokenizers,
    read_sets,
)
from curate.experiment.evaluation import TextFigures, draw_text, encode_uncontaminated, find_overlap
from curate.experiment.figures import Cost, Gap, Rows
from curate.experiment.runs import Machine, RunTask, Training, machines_of, make_runs
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
    """A source of training tokens. `fingerprint` identifies the content of its shards."""

    name: str
    input: str
    shards: str
    tokens: int
    documents: int
    fingerprint: str


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of all sources. `origin` tells how it was chosen, for the report."""

    origin: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Error:
    """The error of a regression on held-out mixtures. `predicts` is True if the regression orders
    mixtures better than chance."""

    rmse: float
    rank_correlation: float
    interval: list[float]
    predicts: bool

    @classmethod
    def of(cls, error: HeldOut) -> Error:
        return cls(error.rmse, error.correlation, list(error.interval), error.predicts)


@dataclass(frozen=True)
class Mixture:
    """A mixture of sources, and the target's bits per byte with it. `measured` is None if no model
    was trained on it. `intervals` are the intervals of the shares, known only for the optimum."""

    shares: dict[str, float]  # by source
    epochs: dict[str, float]  # by source
    predicted: float  # bits per byte
    interval: list[float]  # of `predicted`
    measured: float | None = field(default=None, metadata=OPTIONAL)
    intervals: dict[str, list[float]] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Confirmed:
    """Bits per byte of models trained on two mixtures: the best by prediction (`optimum`), and the
    one by the sizes of the sources (`natural`). Each mixture has one model per seed in `seeds`."""

    seeds: list[int]
    natural: float
    optimum: float
    difference: Gap


@dataclass(frozen=True)
class Point:
    """A mixture that was trained."""

    shares: dict[str, float]
    bits_per_byte: float  # of the target
    texts: dict[str, float]  # bits per byte of each evaluation text
    predicted: dict[str, float]  # regression -> prediction without this mixture
    run: str
    earlier: bool  # True if an earlier search drew it


HEAD = ("", "predicted", "interval", "measured")
SOURCE_HEAD = ("source", "tokens", "natural", "optimum", "interval", "epochs", "best sampled")
REGRESSION_HEAD = ("held-out error", "RMSE", "rank correlation", "interval")


@dataclass(frozen=True)
class MixtureSearch(Findings):
    """All figures of a search for a mixture of sources."""

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
    tokenizer: Tokenizer
    model: str
    changes: dict[str, Any]
    train: dict[str, Any]
    eval: dict[str, TextFigures]
    eval_weights: dict[str, float] | None
    regressions: dict[str, Error]  # name -> error on the target
    regression: str  # name of the one that chose the optimum
    mixtures: dict[str, Mixture]
    confirmed: Confirmed | None
    points: list[Point]
    cost: Cost
    machines: list[Machine]

    def source_rows(self) -> list[list[str]]:
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
        chosen = self.regression
        lines = []
        if not any(error.predicts for error in self.regressions.values()):
            lines.append(
                "neither regression ranks mixtures better than chance: the interval of its rank"
                " correlation includes 0; train more or longer runs before you trust the optimum"
            )
        elif not self.regressions[chosen].predicts:
            lines.append(
                f"{chosen} does not rank mixtures better than chance; the other regression does"
            )
        else:
            lines.append(f"the optimum is predicted by the regression {chosen}")
        if self.confirmed is not None:
            caveats = {None: "; one seed cannot show chance", 0: ", which may be chance"}
            difference = self.confirmed.difference
            lines.append(
                f"trained from {counted(len(self.confirmed.seeds), 'seed')}: optimum"
                f" {self.confirmed.optimum:.4f}, natural {self.confirmed.natural:.4f} bits per"
                f" byte, difference {difference.text()}{caveats.get(difference.sign, '')}"
            )
        return lines

    def about(self) -> list[str]:
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
        shares = self.mixtures["optimum"].shares
        weights = ",".join(f"{name}={100 * share:.2f}" for name, share in shares.items())
        run = f"llmcurate run {self.out}/mixture.yaml -o model --set pretrain.steps=N"
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
            *table(("bits per byte", *HEAD[1:]), self.mixture_rows()),
            "",
            *self.verdicts(),
            *self.commands(),
        ]
        return "\n".join(parts)


@dataclass(frozen=True)
class Prepared:
    """The encoded sources and evaluation texts."""

    sources: list[Source]
    sets: Sets
    tokenizer: Tokenizer
    facts: dict[str, TextFigures]


def prepare(
    inputs: Mapping[str, str],
    texts: Mapping[str, str],
    out: Path,
    chosen: MixSearch,
    sets: Sequence[str],
    options: Options,
) -> Prepared:
    """Encode the sources, in the order of their names, and the evaluation texts. Raises UsageError
    if the sources cannot be mixed."""
    check_names(inputs)
    if shards := next(filter(are_shards, inputs.values()), None):
        raise UsageError(f"mix search: {shards} is token shards: give the documents")
    changes = read_sets(sets, [])
    eval_texts = [
        draw_text(*text, chosen.eval_bytes, chosen.eval_excerpt, changes.read)
        for text in texts.items()
    ]
    local = Options(options.workers, options.quiet)
    corpora = [Corpus(name, (path,)) for name, path in inputs.items()]
    kept = out / "tokenizer" / "tokenizer.json"
    if chosen.tokenizer is None and kept.is_file():
        # Another tokenizer would invalidate all existing runs when a source is added.
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
    say("comparing evaluation texts with the sources by 13-grams", options.quiet)
    digests = {name: file_digest(path / "manifest.json") for name, path in folders.items()}
    shares = find_overlap(eval_texts, corpora, digests, out, changes.read)
    facts = {
        text.name: encode_uncontaminated(
            text, shares, chosen.max_overlap, {out / "eval" / text.name: tokenizer}
        )
        for text in eval_texts
    }
    described = Tokenizer(origin, str(tokenizer), file_digest(tokenizer))
    return Prepared(sources, changes, described, facts)


def _source(name: str, path: str, folder: Path) -> Source:
    from train.data.shards import read_shards

    shards = read_shards(folder)
    tokens = int(shards.length.sum())
    if not tokens:
        raise UsageError(f"mix search: {name}: {folder} holds no tokens")
    return Source(name, path, str(folder), tokens, shards.documents, shards.fingerprint)


_FILE = "mixture.json"


def search_mixture(
    inputs: Mapping[str, str],
    texts: dict[str, str],
    weights: Mapping[str, float],
    out: Path,
    chosen: MixSearch,
    sets: Sequence[str],
    options: Options,
) -> MixtureSearch:
    """Run the search and return its figures; finished runs are not repeated. `weights` are the
    weights of the target texts, or empty to weight texts by their bytes. Raises UsageError before
    anything is trained, and LlmcurateError or RunFailed later."""
    import sklearn  # noqa: F401 (fail now if it is missing, not after the training)

    if len(inputs) < 2:
        raise UsageError("mix search: give two sources or more")
    if not texts:
        raise UsageError("mix search: give texts to score mixtures on: --on NAME=PATH")
    if weights and set(weights) != set(texts):
        unmatched = sorted(set(weights) ^ set(texts))[0]
        raise UsageError(f"mix search: {unmatched} must be in both --on-weights and --on")
    make_folder(out)
    prepared = prepare(inputs, texts, out, chosen, sets, options)
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
    return _Search(prepared, training, dict(weights), out, chosen, options).figures()


@dataclass(frozen=True)
class _Point:
    """A mixture of sources to try in the search, and the task that trains a model on it."""

    shares: dict[str, int]  # in 10,000ths, without sources of share 0
    task: RunTask
    earlier: bool = False  # True if an earlier search in OUT drew it


@dataclass(frozen=True)
class _Search:
    prepared: Prepared
    training: Training
    weights: dict[str, float]
    out: Path
    chosen: MixSearch
    options: Options

    def __post_init__(self) -> None:
        self._check_supply("--total", self.chosen.total)
        self._check_supply("--tokens", self.chosen.tokens)

    def _check_supply(self, option: str, tokens: float) -> None:
        available = sum(source.tokens for source in self.sources)
        if tokens > self.chosen.max_epochs * available:
            raise UsageError(
                f"mix search: {option} {tokens:,.0f} is more than {self.chosen.max_epochs:g} epochs"
                f" of the sources' {counted(available, 'token')}: lower it, or raise --max-epochs"
            )

    @property
    def sources(self) -> list[Source]:
        return self.prepared.sources

    @property
    def natural(self) -> np.ndarray:
        tokens = np.array([source.tokens for source in self.sources], np.float64)
        return tokens / tokens.sum()

    def bounds(self, tokens: float) -> np.ndarray:
        available = np.array([source.tokens for source in self.sources], np.float64)
        return np.minimum(1.0, self.chosen.max_epochs * available / tokens)

    def point(self, counts: Iterable[int], seed: int, part: int) -> _Point:
        named = zip(self.sources, map(int, counts), strict=True)
        used = [(source, count) for source, count in named if count]
        shares = {source.name: count for source, count in used}
        sources = [
            {"name": source.name, "shards": source.shards, "weight": float(count)}
            for source, count in used
        ]
        steps = max(1, round(self.chosen.tokens / self.training.step))
        ends = {"eval_every": steps, "checkpoint_every": steps}
        settings = {**self.training.train, "sources": sources}
        training = replace(self.training, train={**ends, **settings})
        task = training.task(self.digest(shares), None, seed, steps, self.out / "runs", part)
        return _Point(shares, task)

    def identity(self, shares: Mapping[str, int]) -> dict[str, Any]:
        """Return what a mixture's digest is computed from: its sources, the model and the
        settings."""
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
        return text_digest(json.dumps(self.identity(shares), sort_keys=True), "xxh3-128")[:16]

    def earlier(self, names: set[str]) -> list[dict[str, int]]:
        mixtures = []
        for path in sorted((self.out / "runs").glob(f"*/{_FILE}")):
            name = path.parent.name
            try:
                shares = json.loads(path.read_text(encoding="utf-8"))["shares"]
                same = name not in names and self.digest(shares) == name
            except (OSError, ValueError, KeyError, TypeError):
                continue  # damaged, or with a source of another search
            if same and (path.parent / f"seed-{self.chosen.seed}" / "train.json").is_file():
                mixtures.append(shares)
        return mixtures

    def points(self) -> list[_Point]:
        chosen = self.chosen
        drawn = draw_mixtures(self.natural, chosen.runs, chosen.seed, self.bounds(chosen.tokens))
        points = [self.point(counts, chosen.seed, part) for part, counts in enumerate(drawn)]
        for shares in self.earlier({point.task.name for point in points}):
            counts = [shares.get(source.name, 0) for source in self.sources]
            point = self.point(counts, chosen.seed, len(points))
            points.append(replace(point, earlier=True))
        return points

    def make(self, points: Sequence[_Point], title: str) -> Rows:
        for point in points:
            folder = self.out / "runs" / point.task.name
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / _FILE, json.dumps(self.identity(point.shares), indent=1) + "\n")
        tasks = [point.task for point in points]
        make_runs(tasks, self.options, title)
        return Rows(tasks, self.chosen.seed)

    def figures(self) -> MixtureSearch:
        points, chosen = self.points(), self.chosen
        earlier = sum(point.earlier for point in points)
        if earlier:
            say(f"{counted(earlier, 'earlier run')} in {self.out} used too", self.options.quiet)
        rows = self.make(points, "mixtures")
        target = Target.of(rows, self.weights)
        shares = np.array(
            [[p.shares.get(source.name, 0) / WHOLE for source in self.sources] for p in points]
        )
        bits = target.bits(rows, points)
        say("fitting regressions", self.options.quiet)
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
        used = [
            {"name": source.name, "shards": source.shards, "weight": int(count)}
            for source, count in zip(self.sources, whole_shares(fitted.shares), strict=True)
            if count
        ]
        pretrain = {"max_epochs": chosen.max_epochs, "sources": used}
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
            self.prepared.tokenizer,
            self.training.model,
            self.training.changes,
            self.training.train,
            self.prepared.facts,
            self.weights or None,
            {r.name: Error.of(e) for r, e in zip(regressions, errors, strict=True)},
            regressions[best].name,
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
            say("the optimum is the natural mixture: nothing to confirm", self.options.quiet)
            return None, []
        first = self.chosen.seed + 1
        seeds = range(first, first + self.chosen.confirm)
        points = [
            self.point(counts, seed, 2 * nth + side)
            for nth, seed in enumerate(seeds)
            for side, counts in enumerate(whole)
        ]
        rows = self.make(points, "confirmation")
        base, other = (rows.values[point.task.name] * target.scale for point in points[:2])
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
    """The target of the search: a weighted sum of bits per byte. `scale` multiplies the nats and
    bytes of each document, so that the bytes of each evaluation text add up in proportion to the
    text's weight. Nats per byte over all documents then count a text by its weight."""

    weights: np.ndarray  # float64[documents]
    by_text: dict[str, np.ndarray]  # text -> weights if it alone is the target
    scale: np.ndarray  # float64[documents]

    @classmethod
    def of(cls, rows: Rows, weights: Mapping[str, float]) -> Target:
        """Return the target for the documents of `rows`. `weights` maps the name of each evaluation
        text (a group of documents) to its weight. If empty, texts are weighted by their bytes."""
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
        """Return the bits per byte of each document with each trained mixture: float64[points,
        documents]."""
        nats = np.vstack([rows.values[point.task.name] for point in points])
        bits: np.ndarray = nats / np.log(2) / np.maximum(rows.scored.sizes, 1)
        return bits
