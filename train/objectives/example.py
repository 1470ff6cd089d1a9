"""The data of a training step: rows of inputs and targets made from pieces of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from train.config import TrainConfig, stages_of
from train.data.feed import Feed
from train.data.packing import key_of, mix64
from train.data.rows import Piece, Takes
from train.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from train.attention import ContextParallel
    from train.model.config import Task
    from train.model.decoder import Decoder

Kind = TypeVar("Kind", bound="Objective")
_STEP = 0x9E3779B97F4A7C15
IGNORED = -100  # a target that is not scored (torch's cross_entropy default)


@dataclass(frozen=True, kw_only=True)
class Example:
    """The rows of a batch, as a model reads them.

    ``inputs``, ``targets``: int64 [rows, context]. ``targets`` is ``IGNORED`` for padding.
    ``documents``: int64 [rows, context], document numbers, -1 for padding. None: each row is one
        document.
    ``prefix``: bool [rows, context], True for tokens that every token of their document sees.
    ``segments``: int64 [rows, context], the number of each token's segment in its text, from 0.
    ``ends``: int64 [rows, context], in the task of finding an answer in a text. At the text's first
        token, ``targets`` has the place in the row where the answer starts, and ``ends`` the place
        where it ends.
    ``pairs``: int64 [rows, context]. At the first token of a text, 0 if its two segments belong
        together, else 1; ``IGNORED`` at other tokens.
    ``scored``: int64 [targets], places of the scored targets in the flattened rows, if the
        objective scores few; None: all targets are scored.
    ``source``, ``source_documents``: int64 [rows, source], the tokens that an encoder reads in an
        encoder-decoder, and their document numbers, the same as in ``documents``.
    ``chances``: float64 [rows, context], uniform numbers in [0, 1) with which a generator draws its
        tokens."""

    inputs: Tensor
    targets: Tensor
    documents: Tensor | None
    prefix: Tensor | None = None
    segments: Tensor | None = None
    ends: Tensor | None = None
    pairs: Tensor | None = None
    scored: Tensor | None = None
    source: Tensor | None = None
    source_documents: Tensor | None = None
    chances: Tensor | None = None

    @property
    def tokens(self) -> int:
        """The number of scored targets."""
        return int((self.targets != IGNORED).sum())

    @property
    def counts(self) -> dict[str, int]:
        """The numbers by which terms of the loss are divided, by name. ``targets``: the number of
        scored targets. ``tokens``: the number of tokens that the model (with its encoder) reads,
        without padding. ``pairs``: the number of scored segment pairs, if the example has any."""
        read = _count_tokens(self.inputs, self.documents)
        if self.source is not None:
            read += _count_tokens(self.source, self.source_documents)
        pairs = {} if self.pairs is None else {"pairs": int((self.pairs != IGNORED).sum())}
        return {"targets": self.tokens, "tokens": read, **pairs}

    def read_by(
        self,
        model: Decoder,
        draws: Tensor | None = None,
        parallel: ContextParallel | None = None,
        notes: dict[str, list[Tensor]] | None = None,
    ) -> Tensor:
        """Return the model's features [rows, context, hidden]; with ``parallel``, of this process's
        tokens only. ``draws``: int64 [rows], seeds of dropout. Layers add figures to ``notes``.
        """
        return model.features(
            self.inputs,
            documents=self.documents,
            prefix=self.prefix,
            segments=self.segments,
            draws=draws,
            parallel=parallel,
            notes=notes,
            source=self.source,
            source_documents=self.source_documents,
        )

    def pinned(self) -> Example:
        """Return a copy in page-locked memory, from which a GPU can copy while it computes."""
        return self._each(lambda tensor: tensor.pin_memory())

    def on(self, device: torch.device) -> Example:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, work: Callable[[Tensor], Tensor]) -> Example:
        parts = {name: work(tensor) for name, tensor in self._parts() if tensor is not None}
        return replace(self, **parts)

    def _parts(self) -> list[tuple[str, Tensor | None]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def _count_tokens(tokens: Tensor, documents: Tensor | None) -> int:
    return tokens.numel() if documents is None else int((documents >= 0).sum())


class Draws:
    """The random numbers of an objective for a piece of text. They depend only on the seed, the
    epoch, the document and the piece, but not on the row, the step or the process.
    """

    def __init__(self, seed: int, epoch: int, rows: Source | None = None) -> None:
        self.seed, self.epoch, self.rows = seed, epoch, rows

    def key(self, piece: Piece) -> int:
        """Return 64 bits that depend on the piece, the seed and the epoch."""
        return key_of("draw", self.seed, self.epoch, piece.document, piece.first)

    def share(self, piece: Piece) -> float:
        """Return a uniform number in [0, 1) for the piece."""
        return (self.key(piece) >> 11) / 2**53

    def shares(self, piece: Piece, count: int, stream: int = 0) -> npt.NDArray[np.float64]:
        """Return ``count`` uniform numbers in [0, 1) for the piece. Each ``stream`` has its own."""
        with np.errstate(over="ignore"):
            start = mix64(np.full(1, self.key(piece), np.uint64) + np.uint64(stream))
            drawn = mix64(start + np.arange(count, dtype=np.uint64) * np.uint64(_STEP))
        return (drawn >> np.uint64(11)) / 2.0**53

    def of_other_document(self, piece: Piece) -> Piece | None:
        """Return the longest piece of another document in a random row. If a row has no other
        document, the next random row is tried. Return None after eight rows."""
        if self.rows is None:
            return None
        for share in self.shares(piece, 8, 6):
            pieces = self.rows.pieces(int(share * self.rows.count))
            if others := [one for one in pieces if one.document != piece.document]:
                return max(others, key=lambda one: len(one.tokens))
        return None


class Objective(ABC):
    """A training objective, built from its settings and the run's vocabulary. The static methods
    need only the settings. ``sparse``: True if few tokens are scored. ``likelihood``: True if the
    loss is the negative log likelihood of the text, which gives bits per byte.
    """

    sparse = False
    likelihood = True

    def __init__(self, settings: Any, tokens: Vocabulary) -> None:
        self.settings, self.tokens = settings, tokens

    @staticmethod
    def needs(settings: Any, context: int) -> tuple[str, ...]:
        """Return the special tokens for pieces of up to ``context`` tokens, such as "mask"."""
        return ()

    @staticmethod
    def takes(settings: Any) -> Takes | None:
        """Return a function of (counts of tokens in pieces, context) that gives the number of row
        positions of each piece (part of a document). None: a piece takes one position per token."""
        return None

    @staticmethod
    def both_ways(settings: Any) -> bool:
        """Return True if a trained model reads prompts in both directions in generation."""
        return False

    @staticmethod
    def targets(settings: Any, context: int) -> int:
        """Return the length of a row of targets, where a row of inputs has ``context`` tokens."""
        return context

    @staticmethod
    def losses(settings: Any) -> Callable[[Tensor, Example], Tensor] | None:
        """Return a function from logits [rows, context, values] and an example to the loss of each
        text in nats. None: each token has its own loss.
        """
        return None

    @classmethod
    def feed(
        cls,
        path: Path | None,
        config: TrainConfig,
        *,
        task: Task | None = None,
        tokenizer: Path | None = None,
    ) -> Feed:
        """Return a run's training rows from ``path``. ``task``, ``tokenizer``: the model's."""
        asked, context = config.objective, max(stage.context for stage in stages_of(config))
        return Feed(path, config, cls.needs(asked, context), cls.takes(asked))

    def study(self, feed: Feed) -> None:  # noqa: B027 (few have to)
        """Read a run's text before training, if the objective needs figures from it."""

    @abstractmethod
    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        """Return one row with these pieces, which fit into ``context`` positions."""


OBJECTIVES: dict[type, type[Objective]] = {}
FORMS: dict[type, tuple[str, ...]] = {}  # forms of models that may use an objective


def learns(*settings: type, by: tuple[str, ...] = ()) -> Callable[[type[Kind]], type[Kind]]:
    """Register an objective's class for these settings. ``by``: the model forms that can use it."""

    def register(kind: type[Kind]) -> type[Kind]:
        OBJECTIVES.update(dict.fromkeys(settings, kind))
        FORMS.update(dict.fromkeys(settings, by))
        return kind

    return register


class Source(Protocol):
    """A numbered sequence of rows, such as a ``Rows`` or a ``Mixture`` (train/data/rows.py)."""

    @property
    def count(self) -> int: ...

    def width(self, row: int) -> int: ...

    def pieces(self, row: int) -> list[Piece]: ...


def examples(
    objective: Objective, rows: Source, numbered: Iterable[tuple[int, int]], *, seed: int = 0
) -> Example:
    """Return the rows given by pairs (row, epoch) as one example that the objective prepares."""
    per_row = [
        objective.example(rows.pieces(row), rows.width(row), Draws(seed, epoch, rows))
        for row, epoch in numbered
    ]
    joined = {
        name: torch.cat([getattr(row_example, name) for row_example in per_row])
        for name, first in per_row[0]._parts()
        if first is not None
    }
    if objective.sparse:
        joined["scored"] = (joined["targets"].flatten() != IGNORED).nonzero().flatten()
    return replace(per_row[0], **joined)


def causal_row(pieces: Sequence[Piece], context: int) -> tuple[Example, list[tuple[Piece, slice]]]:
    """Return a row in which each token is predicted from those before it, and (piece, its place in
    the row) pairs."""
    inputs = np.zeros((1, context), dtype=np.int64)
    targets = np.full((1, context), IGNORED, dtype=np.int64)
    documents = np.full((1, context), -1, dtype=np.int64)
    places, filled = [], 0
    for piece in pieces:
        place = slice(filled, filled + len(piece.tokens))
        inputs[0, filled] = piece.before
        inputs[0, filled + 1 : place.stop] = piece.tokens[:-1]
        counted = piece.counted
        scored = piece.tokens if counted is None else np.where(counted, piece.tokens, IGNORED)
        targets[0, place], documents[0, place] = scored, piece.document
        places.append((piece, place))
        filled = place.stop
    tensors = (torch.from_numpy(array) for array in (inputs, targets, documents))
    return Example(**dict(zip(("inputs", "targets", "documents"), tensors, strict=True))), places
