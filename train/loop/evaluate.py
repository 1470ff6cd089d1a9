"""Scores of text: loss per token, and bits per byte, which compares models across tokenizers.

A document longer than the context is read through a window that moves by half of it. Each token is
scored once, with at least half a context before it where there is that much (Press et al. 2021,
"sliding window"); documents share rows and do not see each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.data.feed import Feed
from train.data.packing import pack, scatter
from train.data.readers import Foreign, Ints
from train.data.rows import Mixture, Piece, Rows, tokens_of
from train.data.shards import Shards, read_shards
from train.device import autocast
from train.loop.distributed import Ranks
from train.model.decoder import Decoder
from train.objectives.causal import Causal
from train.objectives.example import IGNORED, Example, Objective, Source, examples
from train.objectives.losses import Losses, token_losses

S = TypeVar("S", bound="Score")
MOST = 32  # sources scored apart; the rest, smallest first, together
OTHERS = "(others)"


@dataclass(frozen=True, kw_only=True)
class Score:
    """``loss``: nats per token, the end-of-text tokens included. ``bits_per_byte``: the same nats
    over ln 2 and over the UTF-8 bytes of the text; None where the shards do not know them.
    """

    loss: float
    bits_per_byte: float | None
    documents: int
    tokens: int
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Scores(Score):
    """All of a text that is scored; ``sources``: by source, where there are several. ``terms``: of
    a model that learns several things, the others by name.
    """

    sources: dict[str, Score] = field(default_factory=dict)
    terms: dict[str, float] = field(default_factory=dict)


def choose(shards: Shards, held_out: npt.NDArray[np.int64], budget: int) -> npt.NDArray[np.int64]:
    """Whole documents from all over the shards that fit in ``budget`` tokens together; if none
    does, the shortest one. In shard order.

    Documents longer than what is left are passed over, so a small budget leans to short ones.
    """
    taken, remaining = [], budget
    for index in np.argsort(scatter(held_out.astype(np.uint64)), kind="stable"):
        length = int(shards.length[held_out[index]])
        if length <= remaining:
            taken.append(int(index))
            remaining -= length
        if not remaining:
            break
    return held_out[sorted(taken) or [int(np.argmin(shards.length[held_out]))]]


class Sources:
    """Documents by source, the 31 largest apart. ``name``, ``length`` (tokens) and ``bytes`` (None
    where they are not known) are those of each document; ``codes`` numbers its source in ``names``.
    """

    def __init__(
        self, name: list[str], length: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64] | None
    ) -> None:
        self.length, self.bytes = length, sizes
        distinct, codes = np.unique(np.array(name, dtype=object), return_inverse=True)
        size = np.bincount(codes, self.length, minlength=len(distinct))
        order = np.argsort(-size, kind="stable")
        self.names = [str(distinct[code]) for code in order]
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.codes = rank[codes]
        if len(self.names) > MOST:
            self.names = [*self.names[: MOST - 1], OTHERS]
            self.codes = np.minimum(self.codes, MOST - 1)

    def score(
        self,
        nats: npt.NDArray[np.float64],
        tokens: npt.NDArray[np.int64],
        likelihood: bool = True,
    ) -> Scores:
        """What these nats of so many tokens, by source, are in loss and bits. Where an objective
        leaves tokens out, their share of a source's bytes is left out too. Without ``likelihood``,
        as of hidden tokens, the nats say nothing of bytes.
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

        def score(kind: type[S], these: slice) -> S:
            spent, count = float(nats[these].sum()), int(tokens[these].sum())
            size = None if sizes is None else int(sizes[these].sum())
            return kind(
                loss=spent / max(count, 1),
                bits_per_byte=spent / math.log(2) / size if size else None,
                documents=int(documents[these].sum()),
                tokens=count,
                bytes=size,
            )

        apart = {
            name: score(Score, slice(number, number + 1))
            for number, name in enumerate(self.names)
            if groups > 1 and tokens[number]
        }
        return replace(score(Scores, slice(None)), sources=apart)


class Scored:
    """The held-out documents that are scored, as rows, and the source of each.

    A source is what the documents table calls one; of several folders, the folder's name before it.
    """

    def __init__(self, parts: Sequence[Rows], labels: Sequence[str]) -> None:
        self.rows = Mixture(list(parts))
        self.documents = np.concatenate([part.first + part.documents for part in parts])
        length = np.concatenate([part.length for part in parts])
        sizes = [None if p.shards.bytes is None else p.shards.bytes[p.documents] for p in parts]
        known_sizes = [size for size in sizes if size is not None]
        names: list[str] = []
        for part, label in zip(parts, labels, strict=True):
            sources = part.shards.sources([int(document) for document in part.documents])
            if len(parts) > 1:
                sources = [f"{label}/{source}" if source else label for source in sources]
            names += [source or label for source in sources]
        whole = np.concatenate(known_sizes) if len(known_sizes) == len(sizes) else None
        self.sources = Sources(names, length, whole)

    def group_of(self, documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers of the sources of documents that are scored."""
        return self.sources.codes[np.searchsorted(self.documents, documents)]


def scored(feed: Feed, budget: int, context: int) -> Scored:
    """What is scored of a run's held-out documents: of each source the same share of ``budget``."""
    parts = []
    for path, shards in feed.shards.items():
        chosen = choose(shards, feed.held_out[path], max(1, budget // len(feed.shards)))
        parts.append(Rows(shards, chosen, context, first=feed.first[path], takes=feed.takes))
    return Scored(parts, list(feed.labels.values()))


@dataclass(frozen=True)
class Scoring:
    """How rows are scored: by these processes, so many at once, in this precision. ``loss_chunk``
    as in the settings.
    """

    ranks: Ranks
    batch_rows: int
    precision: str
    loss_chunk: int = 0

    @property
    def autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.ranks.device, self.precision)


Measure = Callable[[Decoder, Example, int], Tensor]  # token_losses, or another figure of targets


# What scores held-out text in place of ``evaluate``, by the objective; the lab adds to it.
SCORES: dict[type[Objective], Callable[[Decoder, Feed, Objective, Scoring], Scores]] = {}


@torch.no_grad()
def batches(
    model: Decoder,
    rows: Source,
    count: int,
    objective: Objective,
    how: Scoring,
    measure: Measure = token_losses,
) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """The batches of this process among the first ``count`` rows: the number of each, and of its
    scored targets the document and what is measured. All processes take equally many turns, as
    FSDP2 needs it.
    """
    firsts = range(0, count, how.batch_rows)
    for number, example in turns(model, rows, count, objective, how):
        with how.autocast:
            measured = measure(model, example.on(how.ranks.device), how.loss_chunk)
        if number >= len(firsts):
            continue
        scored = example.targets.flatten().numpy() != IGNORED
        assert example.documents is not None
        values = measured.double().cpu().numpy()[scored]
        yield number, example.documents.flatten().numpy()[scored], values


def turns(
    model: Decoder, rows: Source, count: int, objective: Objective, how: Scoring
) -> Iterator[tuple[int, Example]]:
    """The turns of this process and the rows of each, with the model in evaluation; past the last
    batch it is that again.
    """
    firsts = range(0, count, how.batch_rows)
    count_of_turns = -(-len(firsts) // how.ranks.readers)
    training = model.training
    model.eval()
    for number in range(how.ranks.reader, count_of_turns * how.ranks.readers, how.ranks.readers):
        first = firsts[min(number, len(firsts) - 1)]
        last = min(first + how.batch_rows, count)
        yield number, examples(objective, rows, [(row, 0) for row in range(first, last)])
    model.train(training)


@torch.no_grad()
def terms_of(
    losses: Losses, scored: Scored, objective: Objective, how: Scoring
) -> dict[str, float]:
    """The terms of the loss by name over all rows, as training reports them, of what a model learns
    beside its targets; of others nothing.
    """
    model, count = losses.model, scored.rows.count
    if model.generator is None and model.head.pair is None:
        return {}
    last = -(-count // (how.batch_rows * how.ranks.readers)) * how.ranks.readers
    sums: dict[str, Tensor] = {}
    for number, example in turns(model, scored.rows, count, objective, how):
        with how.autocast:
            terms = losses(example.on(how.ranks.device))
        for name, term in terms.items():
            if name in ("objective", "loss", "z_loss"):
                continue
            each = sums.setdefault(name, torch.zeros(last, 2, dtype=torch.float64))
            if number * how.batch_rows < count:
                each[number, 0] = float(term.sum)
                each[number, 1] = example.counts.get(term.per, 0)
    means = {}
    for name, each in sums.items():
        total, per = how.ranks.total(each.to(how.ranks.device)).cpu().sum(0).tolist()
        means[name] = total / max(per, 1)
    return means


def evaluate(model: Decoder, scored: Scored, objective: Objective, how: Scoring) -> Scores:
    """Score every row once, as the objective has it in epoch 0, with the context its row gives it.
    Nats are added up in the order of the rows, so that the number of processes changes no bit.
    """
    ranks, count = how.ranks, scored.rows.count
    most = -(-count // (how.batch_rows * ranks.readers))
    nats = np.zeros((most * ranks.readers, len(scored.sources.names)))
    tokens = np.zeros_like(nats, dtype=np.int64)
    for number, documents, values in batches(model, scored.rows, count, objective, how):
        groups = scored.group_of(documents)
        nats[number] = np.bincount(groups, values, minlength=nats.shape[1])
        tokens[number] = np.bincount(groups, minlength=nats.shape[1])
    of_all = [ranks.total(torch.from_numpy(x).to(ranks.device)).cpu() for x in (nats, tokens)]
    total = np.zeros(nats.shape[1])
    for batch in of_all[0].numpy():
        total += batch
    return scored.sources.score(total, of_all[1].sum(0).numpy(), objective.likelihood)


class WholePieces:
    """Pieces as rows of ``context`` positions, none of them split: ``length`` of each (tokens),
    at most ``context``, and what makes it by its number.
    """

    def __init__(self, length: Ints, context: int, piece: Callable[[int], Piece]) -> None:
        self.context, self.piece = context, piece
        self._packed = pack("best-fit", length, context, 0)
        self.count = self._packed.count

    def width(self, row: int) -> int:
        """Positions of a row."""
        return self.context

    def pieces(self, row: int) -> list[Piece]:
        """What stands in a row, in order."""
        return [self.piece(index) for index, _, _ in self._packed.spans(row)]


class Text:
    """A folder of shards whose documents are scored whole, ``context`` tokens at a time; the first
    token of each is read after ``begin``, without a value the one that ends documents.
    """

    def __init__(self, shards: Shards, context: int, begin: int | None = None) -> None:
        if not shards.documents:
            raise RunFailed(f"{shards.folder}: no documents to score")
        first = shards.end if begin is None else begin
        if first is None:
            raise UsageError(
                f"{shards.folder}: nothing says which token ends a text; give end_of_text"
            )
        self.shards, self.context, self.begin = shards, context, first
        stride = max(1, context // 2)
        over = np.maximum(0, shards.length - context)
        count = np.where(shards.length > 0, 1 + -(-over // stride), 0)
        self.document = np.repeat(np.arange(shards.documents), count)
        turn = np.arange(len(self.document)) - np.repeat(np.cumsum(count) - count, count)
        self.first = turn * stride
        self.length = np.minimum(context, shards.length[self.document] - self.first)
        self.read = np.where(turn > 0, context - stride, 0)  # of a window, scored in the one before
        self.rows = WholePieces(self.length, context, self._window)
        sources = shards.sources(list(range(shards.documents)))
        self.sources = Sources([name or "(none)" for name in sources], shards.length, shards.bytes)

    def _window(self, number: int) -> Piece:
        """A window as a piece. Its own number stands for the document, since two windows of one
        may share a row, where they must not see each other.
        """
        document, first = int(self.document[number]), int(self.first[number])
        length, read = int(self.length[number]), int(self.read[number])
        before = self.begin
        if first:
            before = int(self.shards.document(document)[first - 1])
        return Piece(
            document=number,
            first=first,
            before=before,
            tokens=tokens_of(self.shards, document, slice(first, first + length)),
            counted=np.arange(length) >= read,
        )

    def nats(self, model: Decoder, how: Scoring) -> npt.NDArray[np.float64]:
        """Of each document, predicted token by token from those before; every process must call.

        A window stands in one row, so the number of processes changes no bit.
        """
        by_window = np.zeros(len(self.document))
        for _, windows, values in batches(model, self.rows, self.rows.count, Causal(), how):
            np.add.at(by_window, windows, values)
        total = how.ranks.total(torch.from_numpy(by_window).to(how.ranks.device)).cpu().numpy()
        return _sums(self.document, total, self.shards.documents)

    def score(self, nats: npt.NDArray[np.float64]) -> Scores:
        """What these nats of the documents are in loss and bits."""
        codes, groups = self.sources.codes, len(self.sources.names)
        tokens = np.bincount(codes, self.shards.length, minlength=groups).astype(np.int64)
        return self.sources.score(_sums(codes, nats, groups), tokens)


def _sums(
    group: npt.NDArray[np.int64], values: npt.NDArray[np.float64], groups: int
) -> npt.NDArray[np.float64]:
    return np.bincount(group, values, minlength=groups).astype(np.float64, copy=False)


def texts_of(feed: Feed) -> dict[str, Text]:
    """The texts that a run is scored on besides held-out text; raises ``LlmcurateError`` where one
    is no folder of shards by the run's tokenizer.
    """
    config, own = feed.config, next(iter(feed.shards.values()))
    foreign = Foreign(
        vocab_size=config.vocab_size,
        end_of_text=config.end_of_text,
        tokenizer=config.tokenizer,
        dtype=config.token_dtype,
    )
    texts = {}
    for name, folder in config.eval.items():
        shards = read_shards(Path(folder), foreign=foreign)
        if shards.tokenizer_sha256 != own.tokenizer_sha256:
            raise UsageError(
                f"eval {name}: {folder} was encoded by another tokenizer than {own.folder}: encode"
                " it again with that one"
            )
        if shards.vocab_size > feed.vocabulary.size:
            shards = replace(shards, vocab_size=feed.vocabulary.size)
        texts[name] = Text(shards, config.context)
    return texts


def fingerprints(texts: dict[str, Text]) -> dict[str, str]:
    """What stands for the content of each text."""
    return {name: text.shards.fingerprint for name, text in texts.items()}


def notice(name: str, text: Text) -> str:
    """What of a text is scored, in a line to be read before training."""
    tokens = counted(int(text.shards.length.sum()), "token")
    windows = counted(len(text.document), "window")
    return (
        f"eval {name}: {counted(text.shards.documents, 'document')}, {tokens} in {windows} of"
        f" {text.context}"
    )
