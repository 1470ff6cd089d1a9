"""Scores of text: loss per token, and bits per byte, which compares models across tokenizers.

A long document is read through a window that moves by half the context. Each token is scored once,
with at least half a context before it if possible (Press et al. 2021, "sliding window"). A row may
hold several documents, which do not attend to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.data.feed import Feed, foreign_of
from train.data.packing import mix64, pack
from train.data.readers import Floats, Ints
from train.data.rows import Mixture, Piece, Rows, tokens_of
from train.data.shards import Shards, read_shards
from train.device import autocast
from train.loop.distributed import Ranks
from train.model.decoder import Decoder
from train.objectives.causal import Causal
from train.objectives.example import IGNORED, Example, Objective, Source, examples
from train.objectives.losses import Losses, token_losses

S = TypeVar("S", bound="Score")
MAX_SOURCES = 32  # with more, the smallest are scored together as OTHERS
OTHERS = "(others)"


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of some documents. ``loss`` is in nats per token, with end-of-text tokens counted.
    ``bits_per_byte`` is the total loss divided by ln 2 and by the number of UTF-8 bytes of the
    text; None if the shards do not record bytes.
    """

    loss: float
    bits_per_byte: float | None
    documents: int
    tokens: int
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Scores(Score):
    """The score of a whole text, its scores by source if it has several, and other loss terms."""

    sources: dict[str, Score] = field(default_factory=dict)
    terms: dict[str, float] = field(default_factory=dict)


def choose(shards: Shards, held_out: Ints, budget: int) -> Ints:
    """Return held-out documents with at most ``budget`` tokens together, in the order of the
    shards. Documents are tried in a fixed random order and left out if they exceed the rest of the
    budget: a small budget favours short ones. If none fits, the shortest document is returned."""
    taken, remaining = [], budget
    for index in np.argsort(mix64(held_out.astype(np.uint64)), kind="stable"):
        length = int(shards.length[held_out[index]])
        if length <= remaining:
            taken.append(int(index))
            remaining -= length
        if not remaining:
            break
    return held_out[sorted(taken) or [int(np.argmin(shards.length[held_out]))]]


class Sources:
    """Documents grouped by source. ``name``, an argument: the source of each document. ``names``:
    the distinct sources. ``codes``: the index in ``names`` of each document's source. ``length``:
    the tokens of each document. ``bytes``: the bytes of each document, or None."""

    def __init__(self, name: list[str], length: Ints, sizes: Ints | None) -> None:
        self.length, self.bytes = length, sizes
        distinct, codes = np.unique(np.array(name, dtype=object), return_inverse=True)
        size = np.bincount(codes, self.length, minlength=len(distinct))
        order = np.argsort(-size, kind="stable")
        self.names = [str(distinct[code]) for code in order]
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.codes = rank[codes]
        if len(self.names) > MAX_SOURCES:
            self.names = [*self.names[: MAX_SOURCES - 1], OTHERS]
            self.codes = np.minimum(self.codes, MAX_SOURCES - 1)

    def score(self, nats: Floats, tokens: Ints, likelihood: bool = True) -> Scores:
        """Return loss and bits per byte, given the loss in nats and the scored tokens of each
        source. If ``likelihood`` is False, as for masked tokens, bits per byte are None.
        """
        groups = len(self.names)
        documents = np.bincount(self.codes, minlength=groups)
        sizes = None
        if likelihood and self.bytes is not None:
            sizes = np.bincount(self.codes, self.bytes, minlength=groups).astype(np.int64)
            length = np.bincount(self.codes, self.length, minlength=groups).astype(np.int64)
            sizes = sizes * tokens // np.maximum(length, 1)
            if not sizes.sum():
                raise RunFailed(
                    "all documents to be scored are empty: drop documents without text first"
                )

        def score(kind: type[S], group: slice) -> S:
            total_nats, count = float(nats[group].sum()), int(tokens[group].sum())
            size = None if sizes is None else int(sizes[group].sum())
            return kind(
                loss=total_nats / max(count, 1),
                bits_per_byte=total_nats / math.log(2) / size if size else None,
                documents=int(documents[group].sum()),
                tokens=count,
                bytes=size,
            )

        by_source = {
            name: score(Score, slice(number, number + 1))
            for number, name in enumerate(self.names)
            if groups > 1 and tokens[number]
        }
        return replace(score(Scores, slice(None)), sources=by_source)


class Scored:
    """Held-out documents to score: the rows that contain them, and the source of each document."""

    def __init__(self, parts: Sequence[Rows], labels: Sequence[str]) -> None:
        self.rows = Mixture(list(parts))
        self.documents = np.concatenate([part.first + part.documents for part in parts])
        length = np.concatenate([part.shards.length[part.documents] for part in parts])
        sizes = [p.shards.bytes[p.documents] for p in parts if p.shards.bytes is not None]
        names: list[str] = []
        for part, label in zip(parts, labels, strict=True):
            sources = part.shards.sources([int(document) for document in part.documents])
            if len(parts) > 1:
                sources = [f"{label}/{source}" if source else label for source in sources]
            names += [source or label for source in sources]
        whole = np.concatenate(sizes) if len(sizes) == len(parts) else None
        self.sources = Sources(names, length, whole)

    def group_of(self, documents: Ints) -> Ints:
        """Return the index of the source of each document."""
        return self.sources.codes[np.searchsorted(self.documents, documents)]


def held_out_rows(feed: Feed, budget: int, context: int) -> Scored:
    """Choose held-out documents of a run to score. Each folder gets an equal share of ``budget``, a
    number of tokens. If a document is longer than its folder's share, its beginning is scored."""
    parts, share = [], max(1, budget // len(feed.shards))
    for path, shards in feed.shards.items():
        chosen, first = choose(shards, feed.held_out[path], share), feed.first[path]
        parts.append(Rows(shards, chosen, context, first=first, takes=feed.takes, most=share))
    return Scored(parts, list(feed.labels.values()))


@dataclass(frozen=True)
class Scoring:
    """Settings for scoring: processes, rows per batch, precision and ``loss_chunk``."""

    ranks: Ranks
    batch_rows: int
    precision: str
    loss_chunk: int = 0

    @property
    def autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.ranks.device, self.precision)


Measure = Callable[[Decoder, Example, int], Tensor]  # returns a value per target, like token_losses


# Functions that replace ``evaluate`` for an objective. train/lab adds entries.
SCORES: dict[type[Objective], Callable[[Decoder, Feed, Objective, Scoring], Scores]] = {}


@torch.no_grad()
def batches(
    model: Decoder,
    rows: Source,
    count: int,
    objective: Objective,
    scoring: Scoring,
    measure: Measure = token_losses,
) -> Iterator[tuple[int, Ints, Floats]]:
    """Yield (batch number, documents, values) for this process's batches of the first ``count``
    rows. For each scored target, ``documents`` has the number of its document, and ``values`` the
    result of ``measure``. All processes run equally many batches, as FSDP2 requires."""
    firsts = range(0, count, scoring.batch_rows)
    for number, example in example_batches(model, rows, count, objective, scoring):
        with scoring.autocast:
            measured = measure(model, example.on(scoring.ranks.device), scoring.loss_chunk)
        if number >= len(firsts):
            continue
        scored = example.targets.flatten().numpy() != IGNORED
        assert example.documents is not None
        values = measured.double().cpu().numpy()[scored]
        yield number, example.documents.flatten().numpy()[scored], values


def example_batches(
    model: Decoder, rows: Source, count: int, objective: Objective, scoring: Scoring
) -> Iterator[tuple[int, Example]]:
    """Yield (batch number, batch) for the batches that this process scores. The last batch is
    repeated, with numbers after its own, until all processes have the same number of batches."""
    firsts = range(0, count, scoring.batch_rows)
    total = -(-len(firsts) // scoring.ranks.readers)
    training = model.training
    model.eval()
    readers = scoring.ranks.readers
    for number in range(scoring.ranks.reader, total * readers, readers):
        first = firsts[min(number, len(firsts) - 1)]
        last = min(first + scoring.batch_rows, count)
        yield number, examples(objective, rows, [(row, 0) for row in range(first, last)])
    model.train(training)


@torch.no_grad()
def terms_of(
    losses: Losses, scored: Scored, objective: Objective, scoring: Scoring
) -> dict[str, float]:
    """Return the mean of each additional loss term by name; empty if the loss has only one term."""
    model, count = losses.model, scored.rows.count
    if model.generator is None and model.head.pair is None:
        return {}
    last = -(-count // (scoring.batch_rows * scoring.ranks.readers)) * scoring.ranks.readers
    sums: dict[str, Tensor] = {}
    for number, example in example_batches(model, scored.rows, count, objective, scoring):
        with scoring.autocast:
            terms = losses(example.on(scoring.ranks.device))
        for name, term in terms.items():
            if name in ("objective", "loss", "z_loss"):
                continue
            each = sums.setdefault(name, torch.zeros(last, 2, dtype=torch.float64))
            if number * scoring.batch_rows < count:
                each[number, 0] = float(term.sum)
                each[number, 1] = example.counts.get(term.per, 0)
    means = {}
    for name, each in sums.items():
        total, per = scoring.ranks.total(each.to(scoring.ranks.device)).cpu().sum(0).tolist()
        means[name] = total / max(per, 1)
    return means


def evaluate(model: Decoder, scored: Scored, objective: Objective, scoring: Scoring) -> Scores:
    """Score every row once, as the objective prepares the row for epoch 0. The losses are added in
    the order of the rows, so the result has the same bits with any number of processes."""
    ranks, count = scoring.ranks, scored.rows.count
    most = -(-count // (scoring.batch_rows * ranks.readers))
    nats = np.zeros((most * ranks.readers, len(scored.sources.names)))
    tokens = np.zeros_like(nats, dtype=np.int64)
    for number, documents, values in batches(model, scored.rows, count, objective, scoring):
        groups = scored.group_of(documents)
        nats[number] = np.bincount(groups, values, minlength=nats.shape[1])
        tokens[number] = np.bincount(groups, minlength=nats.shape[1])
    total = np.zeros(nats.shape[1])
    for batch in ranks.total_of(nats):
        total += batch
    return scored.sources.score(total, ranks.total_of(tokens).sum(0), objective.likelihood)


class WholePieces:
    """Rows of ``context`` positions, each filled with whole pieces of documents. ``length`` is each
    piece's number of tokens, at most ``context``. ``piece`` is a function from number to piece."""

    def __init__(self, length: Ints, context: int, piece: Callable[[int], Piece]) -> None:
        self.context, self.piece = context, piece
        self._packed = pack("best-fit", length, context, 0)
        self.count = self._packed.count

    def width(self, row: int) -> int:
        return self.context

    def pieces(self, row: int) -> list[Piece]:
        """Return the pieces of a row, from left to right."""
        return [self.piece(index) for index, _, _ in self._packed.spans(row)]


class Text:
    """Shards whose documents are scored whole, ``context`` tokens at a time. ``begin`` is the token
    id placed before each document, by default ``Shards.before``. If there is no such token, a
    document is read after the last token of the previous document, as in training.
    """

    def __init__(self, shards: Shards, context: int, begin: int | None = None) -> None:
        if not shards.documents:
            raise RunFailed(f"{shards.folder}: no documents to score")
        shards = shards.texts()
        first = shards.before if begin is None else begin
        if first is None and shards.tokenizer is not None:
            raise UsageError(
                f"{shards.folder}: the token that ends a text is not known; state eos_token in a"
                f" tokenizer_config.json beside {shards.tokenizer}"
            )
        self.shards, self.context, self.begin = shards, context, first
        stride = max(1, context // 2)
        over = np.maximum(0, shards.length - context)
        count = np.where(shards.length > 0, 1 + -(-over // stride), 0)
        self.document = np.repeat(np.arange(shards.documents), count)
        turn = np.arange(len(self.document)) - np.repeat(np.cumsum(count) - count, count)
        self.first = turn * stride
        self.length = np.minimum(context, shards.length[self.document] - self.first)
        self.read = np.where(turn > 0, context - stride, 0)  # first tokens that are only context
        self.rows = WholePieces(self.length, context, self._window)
        sources = shards.sources(list(range(shards.documents)))
        self.sources = Sources([name or "(none)" for name in sources], shards.length, shards.bytes)

    def _window(self, number: int) -> Piece:
        """Return window ``number`` as a piece of text. The number also becomes the piece's document
        number, so that two windows of one document do not attend to each other if they share a row.
        """
        document, first = int(self.document[number]), int(self.first[number])
        length, read = int(self.length[number]), int(self.read[number])
        tokens, before = self.shards.document(document)[:first], self.begin or 0
        if not first and self.begin is None:
            tokens = self.shards.document(document - 1)
        return Piece(
            document=number,
            first=first,
            before=int(tokens[-1]) if len(tokens) else before,
            tokens=tokens_of(self.shards, document, slice(first, first + length)),
            counted=np.arange(length) >= read,
        )

    def nats(self, model: Decoder, scoring: Scoring) -> Floats:
        """Return the loss of each document in nats. Every process must call this method."""
        by_window = np.zeros(len(self.document))
        for _, windows, values in batches(model, self.rows, self.rows.count, Causal(), scoring):
            np.add.at(by_window, windows, values)
        total = scoring.ranks.total_of(by_window)
        sums = np.bincount(self.document, total, minlength=self.shards.documents)
        return sums.astype(np.float64, copy=False)

    def score(self, nats: Floats) -> Scores:
        """Return loss and bits per byte, given the loss of each document in nats."""
        codes, groups = self.sources.codes, len(self.sources.names)
        tokens = np.bincount(codes, self.shards.length, minlength=groups).astype(np.int64)
        of_groups = np.bincount(codes, nats, minlength=groups).astype(np.float64, copy=False)
        return self.sources.score(of_groups, tokens)


def open_texts(feed: Feed) -> dict[str, Text]:
    """Open the texts that the run is scored on besides held-out text. Raises ``LlmcurateError`` if
    one cannot be read or was encoded by another tokenizer."""
    config, own = feed.config, next(iter(feed.shards.values()))
    texts = {}
    for name, folder in config.eval.items():
        shards = read_shards(Path(folder), foreign=foreign_of(config))
        if shards.tokenizer_sha256 != own.tokenizer_sha256:
            raise UsageError(
                f"eval {name}: {folder} was encoded by another tokenizer than {own.folder}: encode"
                " it again with that tokenizer"
            )
        if shards.vocab_size > feed.vocabulary.size:
            shards = replace(shards, vocab_size=feed.vocabulary.size)
        texts[name] = Text(shards, config.context, own.before)
    return texts


def fingerprints(texts: dict[str, Text]) -> dict[str, str]:
    return {name: text.shards.fingerprint for name, text in texts.items()}


def text_notice(name: str, text: Text) -> str:
    """Return a line with the size of a text, to show before training."""
    tokens = counted(int(text.shards.length.sum()), "token")
    windows = counted(len(text.document), "window")
    return (
        f"eval {name}: {counted(text.shards.documents, 'document')}, {tokens} in {windows} of"
        f" {text.context}"
    )
