"""What a step trains on: rows of inputs and targets, made of pieces of documents."""

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
from train.data.packing import key_of, scatter
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
    """Rows for a model. ``inputs, targets, documents``: int64 [rows, context]; ``documents``
    numbers documents, padding is -1 there and ``IGNORED`` in ``targets``; None where each row is
    one. ``prefix``: bool [rows, context], tokens that all of their document see, or None.
    ``segments``: int64 [rows, context], the part of its text that a token is in. ``ends``: int64
    [rows, context], of answers: at the first token of a text the place in the row where its answer
    ends, as ``targets`` has where it begins. ``pairs``: int64
    [rows, context], at the first token of a text whether its segments belong together (0) or not
    (1), ``IGNORED`` elsewhere. ``scored``: int64 [targets], where those that count stand in the
    flattened rows, for objectives that score few; None for all. ``source`` and
    ``source_documents``: int64 [rows, source], what the encoder of an encoder-decoder reads, and
    the documents that its tokens belong to, numbered as the others. ``chances``: float64 [rows,
    context], numbers from 0 up to 1, evenly drawn, by which a generator chooses tokens.
    """

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
        """Targets that are scored."""
        return int((self.targets != IGNORED).sum())

    @property
    def counts(self) -> dict[str, int]:
        """By what terms of the loss are divided: ``targets`` that are scored, ``tokens`` that stand
        in the rows, of a source too, and ``pairs``.
        """
        read = _standing(self.inputs, self.documents)
        if self.source is not None:
            read += _standing(self.source, self.source_documents)
        pairs = {} if self.pairs is None else {"pairs": int((self.pairs != IGNORED).sum())}
        return {"targets": self.tokens, "tokens": read, **pairs}

    def read_by(
        self,
        model: Decoder,
        draws: Tensor | None = None,
        parallel: ContextParallel | None = None,
        notes: dict[str, list[Tensor]] | None = None,
    ) -> Tensor:
        """The model's features of the rows, [rows, context, hidden]; ``draws``: int64 [rows], what
        decides on dropout. With ``parallel`` of this process's tokens. ``notes``: filled with what
        the model's layers say.
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
        """In page-locked memory, from which a GPU copies while it computes."""
        return self._each(lambda tensor: tensor.pin_memory())

    def on(self, device: torch.device) -> Example:
        """On a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, work: Callable[[Tensor], Tensor]) -> Example:
        parts = {name: work(tensor) for name, tensor in self._parts() if tensor is not None}
        return replace(self, **parts)

    def _parts(self) -> list[tuple[str, Tensor | None]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def _standing(tokens: Tensor, documents: Tensor | None) -> int:
    """How many tokens of rows are no padding."""
    return tokens.numel() if documents is None else int((documents >= 0).sum())


class Draws:
    """What an objective draws for a piece: a function of the seed, the epoch, the document and the
    piece alone, whatever row, step or process it is in."""

    def __init__(self, seed: int, epoch: int, rows: Source | None = None) -> None:
        self.seed, self.epoch, self.rows = seed, epoch, rows

    def key(self, piece: Piece) -> int:
        """64 bits of the piece's own."""
        return key_of("draw", self.seed, self.epoch, piece.document, piece.first)

    def share(self, piece: Piece) -> float:
        """A number from 0 up to 1, evenly drawn."""
        return (self.key(piece) >> 11) / 2**53

    def shares(self, piece: Piece, count: int, what: int = 0) -> npt.NDArray[np.float64]:
        """``count`` such numbers; others for each ``what``."""
        with np.errstate(over="ignore"):
            start = scatter(np.full(1, self.key(piece), np.uint64) + np.uint64(what))
            drawn = scatter(start + np.arange(count, dtype=np.uint64) * np.uint64(_STEP))
        return (drawn >> np.uint64(11)) / 2.0**53

    def other(self, piece: Piece) -> Piece | None:
        """A piece of another document, or none where a few rows have no such."""
        if self.rows is None:
            return None
        for share in self.shares(piece, 8, 6):
            pieces = self.rows.pieces(int(share * self.rows.count))
            if others := [one for one in pieces if one.document != piece.document]:
                return max(others, key=lambda one: len(one.tokens))
        return None


class Objective(ABC):
    """What is to be learned from pieces of documents. Built with its settings and the run's
    vocabulary; what rows and vocabulary have to be like follows from the settings before.

    ``sparse``: whether few of the tokens are scored. ``likelihood``: whether the loss is that of
    the text, so that it says how many bits a byte takes.
    """

    sparse = False
    likelihood = True

    def __init__(self, settings: Any, tokens: Vocabulary) -> None:
        self.settings, self.tokens = settings, tokens

    @staticmethod
    def needs(settings: Any, context: int) -> tuple[str, ...]:
        """The roles of the special tokens that it needs for pieces of so many tokens at most."""
        return ()

    @staticmethod
    def takes(settings: Any) -> Takes | None:
        """The positions that pieces take; None where these are their tokens."""
        return None

    @staticmethod
    def both_ways(settings: Any) -> bool:
        """Whether a prompt is read both ways in generation."""
        return False

    @staticmethod
    def targets(settings: Any, context: int) -> int:
        """Positions of a row of targets where one of sources has ``context``."""
        return context

    @staticmethod
    def losses(settings: Any) -> Callable[[Tensor, Example], Tensor] | None:
        """What gives the nats of each text by logits [rows, context, values] and example; None
        where they are those of single tokens.
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
        """The text of a run; of labelled texts with the ``task`` that the model has already, if it
        has, and its ``tokenizer``.
        """
        asked, context = config.objective, max(stage.context for stage in stages_of(config))
        return Feed(path, config, cls.needs(asked, context), cls.takes(asked))

    def study(self, feed: Feed) -> None:  # noqa: B027 (few have to)
        """Look at the text of a run before it begins."""

    @abstractmethod
    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        """One row of the pieces, which fit into ``context`` positions."""


OBJECTIVES: dict[type, type[Objective]] = {}
FORMS: dict[type, tuple[str, ...]] = {}  # of models that may ask for it


def learns(*settings: type, by: tuple[str, ...] = ()) -> Callable[[type[Kind]], type[Kind]]:
    """Register the class of these settings. ``by``: the forms of models that may ask for them."""

    def register(kind: type[Kind]) -> type[Kind]:
        OBJECTIVES.update(dict.fromkeys(settings, kind))
        FORMS.update(dict.fromkeys(settings, by))
        return kind

    return register


class Source(Protocol):
    """Rows by number, as ``Rows`` and ``Mixture`` are."""

    @property
    def count(self) -> int: ...

    def width(self, row: int) -> int: ...

    def pieces(self, row: int) -> list[Piece]: ...


def examples(
    objective: Objective, rows: Source, numbered: Iterable[tuple[int, int]], *, seed: int = 0
) -> Example:
    """The rows of these numbers, each with its epoch, as the objective has them."""
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


def laid_out(pieces: Sequence[Piece], context: int) -> tuple[Example, list[tuple[Piece, slice]]]:
    """Each token after the one before it, piece after piece; and where each piece stands."""
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
