"""Texts that are scored whole, so that runs which trained on different text can be compared.

A document longer than the context is read through a window that moves by half of it. Each token is
scored once, with at least half a context before it where there is that much (Press et al. 2021,
"sliding window"); documents share rows and do not see each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from train.data.feed import Feed
from train.data.packing import pack
from train.data.rows import Piece, tokens_of
from train.data.shards import Shards, read_shards
from train.data.token_file import Foreign, Ints
from train.loop.evaluate import Scores, Scoring, Sources, batches
from train.model.decoder import Decoder
from train.objectives.causal import Causal


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
    """The values of each group, added up."""
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
