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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from curate.engines.base import Task
from curate.experiment.ablate import COMMON
from curate.experiment.corpora import Corpus, Sets, read_sets
from curate.experiment.encoding import ORDER, choose_tokenizers, encode_corpus, make_tokenizers
from curate.experiment.evaluation import EvalText, draw_text, encode_apart, find_overlap
from curate.experiment.figures import Rows
from curate.experiment.runs import Place, Training, done_of, folder_of, make_runs
from curate.formats.read_settings import ReadSettings
from curate.products.eval_texts import are_shards, check_names
from curate.run.outcome import Options
from llmcurate.base.disk.files import file_digest, make_folder, text_digest, write_text
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal.progress import say
from train.evaluate.mixtures import (
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
from train.evaluate.paired import paired_difference

if TYPE_CHECKING:
    from curate.cli.model_settings import MixSearch


@dataclass(frozen=True)
class Source:
    """tokens: that there are to train on; fingerprint: of the shards' content; input: the documents
    that they were made of, or the shards."""

    name: str
    input: str
    shards: Path
    tokens: int
    documents: int
    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shards": str(self.shards)}


@dataclass(frozen=True)
class Prepared:
    """sets: of --set; tokenizer: what is said of it; facts: of evaluation texts."""

    sources: list[Source]
    sets: Sets
    tokenizer: dict[str, Any]
    facts: dict[str, dict[str, Any]]
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
            _check_vocab(out, int(changes.values("tokenizer").get("vocab", chosen.vocab)))
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
    facts = _encode_texts(
        drawn, corpora, folders, tokenizer, out, chosen, place.quiet, changes.read
    )
    described = {"origin": origin, "file": str(tokenizer), "sha256": file_digest(tokenizer)}
    return Prepared(sources, changes, described, facts, not ready)


def _check_vocab(out: Path, vocab: int) -> None:
    """UsageError where the search in OUT began with another size of the vocabulary."""
    card = json.loads((out / "tokenizer" / "tokenizer_card.json").read_text(encoding="utf-8"))
    if (asked := card["vocab_asked"]) != vocab:
        raise UsageError(
            f"the runs in {out} have a tokenizer of {counted(asked, 'token')}: give --vocab"
            f" {asked}, or another folder"
        )


def _source(name: str, path: str, folder: Path) -> Source:
    from train.data.shards import read_shards

    shards = read_shards(folder)
    tokens = int(shards.length.sum())
    if not tokens:
        raise UsageError(f"mix search: {name}: {folder} holds no tokens")
    return Source(name, path, folder, tokens, shards.documents, shards.fingerprint)


def _tokenizer_of(folders: Mapping[str, Path]) -> Path:
    """The tokenizer.json of shards that were encoded by one."""
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


def _encode_texts(
    drawn: Sequence[EvalText],
    corpora: Sequence[Corpus],
    folders: Mapping[str, Path],
    tokenizer: Path,
    out: Path,
    chosen: MixSearch,
    quiet: bool,
    read: ReadSettings,
) -> dict[str, dict[str, Any]]:
    """Encodes the documents that no source holds. Shards have no words to compare."""
    if corpora:
        say("comparing evaluation texts with the sources by 13-grams", quiet)
        digests = {name: file_digest(path / "manifest.json") for name, path in folders.items()}
        shares = find_overlap(drawn, corpora, digests, out, read)
    else:
        say("evaluation texts are not compared with sources, which are token shards", quiet)
        shares = {"": {text.name: [0.0] * len(text.documents) for text in drawn}}
    facts = {
        text.name: encode_apart(
            text, shares, chosen.max_overlap, {out / "eval" / text.name: tokenizer}
        )
        for text in drawn
    }
    if not corpora:
        for fact in facts.values():
            fact["overlap"] = None
    return facts


_FILE = "mixture.json"


def search_mixture(
    inputs: Mapping[str, str],
    texts: dict[str, str],
    weights: Mapping[str, float],
    out: Path,
    chosen: MixSearch,
    sets: Sequence[str],
    place: Place,
) -> dict[str, Any]:
    """The figures of the search; runs that are there are not made again. weights: of the texts, by
    their bytes where there are none. Raises UsageError before anything is trained, LlmcurateError
    and RunFailed."""
    import sklearn  # noqa: F401 (missed here, not when all is trained)

    if len(inputs) < 2:
        raise UsageError("mix search: a mixture has two sources or more: give the others too")
    if not texts:
        raise UsageError("mix search: give --eval NAME=PATH: texts that all mixtures are scored on")
    if weights and set(weights) != set(texts):
        odd = sorted(set(weights) ^ set(texts))[0]
        raise UsageError(f"mix search: --eval-weights and --eval: {odd} is in one of them alone")
    make_folder(out)
    prepared = prepare(inputs, texts, out, chosen, sets, place)
    training = Training(
        chosen.model,
        prepared.sets.values("model"),
        {
            **COMMON,
            **chosen.model_dump(include={"rows", "context", "lr", "device"}),
            **prepared.sets.values("pretrain"),
        },
        {name: str(out / "eval" / name) for name in texts},
        chosen.threads,
    )
    return _Search(prepared, training, dict(weights), out, chosen, place).figures()


@dataclass(frozen=True)
class _Point:
    """A mixture that was tried. shares: in 10,000ths by source, those above 0; earlier: from
    another search in OUT, of fewer sources or of more runs."""

    shares: dict[str, int]
    task: Task
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
        """UsageError where all sources together have too little text."""
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
            {"name": source.name, "shards": str(source.shards), "weight": float(count)}
            for source, count in taken
        ]
        steps = max(1, round(self.chosen.tokens / self.training.step))
        ends = {"eval_every": steps, "checkpoint_every": steps}
        settings = {**self.training.settings, "sources": sources}
        training = replace(self.training, settings={**ends, **settings})
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
            "train": self.training.settings,
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
        for shares in self.earlier({point.task["name"] for point in points}):
            counts = [shares.get(source.name, 0) for source in self.sources]
            point = self.point(counts, chosen.seed, len(points))
            points.append(replace(point, earlier=True))
        return points

    def make(self, points: Sequence[_Point], title: str) -> Rows:
        """Trains and scores what is not there yet."""
        for point in points:
            folder = self.out / "runs" / point.task["name"]
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / _FILE, json.dumps(self.identity(point.shares), indent=1) + "\n")
        tasks = [point.task for point in points]
        make_runs(tasks, self.place, title)
        return Rows(tasks, self.chosen.seed)

    def figures(self) -> dict[str, Any]:
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
        mixtures = {
            "optimum": self._mixture(fitted.shares, fitted, 0),
            "natural": {**self._mixture(self.natural, fitted, 1), "measured": float(scores[0])},
            "best sampled": {
                **self._mixture(shares[lowest], fitted, 2),
                "measured": float(scores[lowest]),
            },
        }
        low, high = np.quantile(fitted.drawn, [0.025, 0.975], axis=0)
        mixtures["optimum"]["intervals"] = {
            source.name: [float(low[k]), float(high[k])] for k, source in enumerate(self.sources)
        }
        confirmed, tasks = self._confirm(fitted.shares, target), [p.task for p in points]
        texts = {
            name: {
                r.name: _error(held_out(r, shares, bits, weights, chosen.seed)) for r in regressions
            }
            for name, weights in target.by_text.items()
        }
        self._write_recipe(fitted.shares)
        return {
            "sources": [source.to_json() for source in self.sources],
            "seed": chosen.seed,
            "tokens": chosen.tokens,
            "total": chosen.total,
            "max_epochs": chosen.max_epochs,
            "out": str(self.out),
            "encoded": self.prepared.encoded,
            "tokenizer": self.prepared.tokenizer,
            "model": self.training.model,
            "changes": self.training.changes,
            "train": self.training.settings,
            "eval": self.prepared.facts,
            "eval_weights": self.weights or None,
            "regressions": {r.name: _error(e) for r, e in zip(regressions, errors, strict=True)},
            "regression": regressions[best].name,
            "texts": texts,
            "mixtures": mixtures,
            "confirmed": confirmed and confirmed.figures,
            "points": self._tried(points, shares, bits, target, regressions, errors),
            **_cost(tasks + (confirmed.tasks if confirmed else [])),
        }

    def _tried(
        self,
        points: Sequence[_Point],
        shares: np.ndarray,
        bits: np.ndarray,
        target: Target,
        regressions: Sequence[Regression],
        errors: Sequence[HeldOut],
    ) -> list[dict[str, Any]]:
        """What was measured of each mixture, and what regressions predict of it without its run."""
        return [
            {
                "shares": {s.name: float(v) for s, v in zip(self.sources, row, strict=True)},
                "bits_per_byte": float(of_run @ target.weights),
                "texts": {name: float(of_run @ w) for name, w in target.by_text.items()},
                "predicted": {
                    regression.name: float(error.predictions[number])
                    for regression, error in zip(regressions, errors, strict=True)
                },
                "run": point.task["name"],
                "earlier": point.earlier,
            }
            for number, (point, row, of_run) in enumerate(zip(points, shares, bits, strict=True))
        ]

    def _mixture(self, shares: np.ndarray, fitted: Optimum, number: int) -> dict[str, Any]:
        """Its shares and epochs in the real run, and what is predicted of it."""
        low, high = np.quantile(fitted.resampled[:, number], [0.025, 0.975])
        epochs = {
            source.name: float(share * self.chosen.total / source.tokens)
            for source, share in zip(self.sources, shares, strict=True)
        }
        return {
            "shares": {s.name: float(v) for s, v in zip(self.sources, shares, strict=True)},
            "epochs": epochs,
            "predicted": float(fitted.predicted[number]),
            "interval": [float(low), float(high)],
        }

    def _confirm(self, shares: np.ndarray, target: Target) -> Confirmed | None:
        """The optimum beside the natural mixture, both trained from seeds that are no run's."""
        if not self.chosen.confirm:
            return None
        whole = whole_shares(self.natural), whole_shares(shares)
        if (whole[0] == whole[1]).all():
            say("the optimum is the natural mixture: nothing to confirm", self.place.quiet)
            return None
        first = self.chosen.seed + 1
        seeds = range(first, first + self.chosen.confirm)
        points = [
            self.point(counts, seed, 2 * nth + side)
            for nth, seed in enumerate(seeds)
            for side, counts in enumerate(whole)
        ]
        rows = self.make(points, "confirmation")
        base, other = (rows.nats[point.task["name"]] * target.scale for point in points[:2])
        difference = paired_difference(
            base,
            other,
            rows.scored.sizes * target.scale,
            rows.scored.strata,
            seed=self.chosen.seed,
        )
        total = float((rows.scored.sizes * target.scale).sum()) * np.log(2)
        figures = {
            "seeds": list(seeds),
            "natural": float(base.sum(axis=1).mean() / total),
            "optimum": float(other.sum(axis=1).mean() / total),
            "difference": difference.to_json(),
        }
        return Confirmed(figures, [point.task for point in points])

    def _write_recipe(self, shares: np.ndarray) -> None:
        whole = whole_shares(shares)
        sources = [
            {"name": source.name, "shards": str(source.shards), "weight": int(count)}
            for source, count in zip(self.sources, whole, strict=True)
            if count
        ]
        settings = {"max_epochs": self.chosen.max_epochs, "sources": sources}
        recipe = {"name": "mixture", "steps": [{"pretrain": settings}]}
        write_text(self.out / "mixture.yaml", yaml.safe_dump(recipe, sort_keys=False))


@dataclass(frozen=True)
class Confirmed:
    """figures: as they are reported; tasks: their runs."""

    figures: dict[str, Any]
    tasks: list[Task]


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
        nats = np.vstack([rows.nats[point.task["name"]] for point in points])
        bits: np.ndarray = nats / np.log(2) / np.maximum(rows.scored.sizes, 1)
        return bits


def _error(error: HeldOut) -> dict[str, Any]:
    return {
        "rmse": error.rmse,
        "rank_correlation": error.correlation,
        "interval": list(error.interval),
        "predicts": error.predicts,
    }


def _cost(tasks: Sequence[Task]) -> dict[str, Any]:
    """What all runs took, and the classes of machines that made them."""
    summaries = [read_json(folder_of(task) / "train.json") for task in tasks]
    machines = [(done_of(task) or {}).get("machine") for task in tasks]
    return {
        "cost": {
            "runs": len(tasks),
            "seconds": sum(summary["timing"]["seconds"] for summary in summaries),
            "tokens": sum(summary["tokens"] for summary in summaries),
            "flops": sum(s["tokens"] * s["flops_per_token"] for s in summaries),
        },
        "machines": [m for nth, m in enumerate(machines) if m and m not in machines[:nth]],
    }
