"""What a step trains on: rows of inputs and targets, made of pieces of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from train.data.packing import key_of
from train.data.rows import Piece

IGNORED = -100  # a target that is not scored (torch's cross_entropy default)


@dataclass(frozen=True, kw_only=True)
class Example:
    """Rows for a model. ``inputs, targets, documents``: int64 [rows, context]; ``documents``
    numbers documents, padding is -1 there and ``IGNORED`` in ``targets``; None where each row is
    one. ``prefix``: bool [rows, context], tokens that all of their document see, or None.
    """

    inputs: Tensor
    targets: Tensor
    documents: Tensor | None
    prefix: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Targets that are scored."""
        return int((self.targets != IGNORED).sum())

    @property
    def read(self) -> int:
        """Tokens that stand in the rows."""
        return (
            int((self.documents >= 0).sum()) if self.documents is not None else self.inputs.numel()
        )

    def pinned(self) -> Example:
        """In page-locked memory, from which a GPU copies while it computes."""
        return self._each(lambda tensor: tensor.pin_memory())

    def on(self, device: torch.device) -> Example:
        """On a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, work: Callable[[Tensor], Tensor]) -> Example:
        made: dict[str, Any] = {
            name: None if tensor is None else work(tensor) for name, tensor in self._parts()
        }
        return Example(**made)

    def _parts(self) -> list[tuple[str, Tensor | None]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


class Draws:
    """What an objective draws for a piece: a function of the seed, the epoch, the document and the
    piece alone, whatever row, step or process it is in."""

    def __init__(self, seed: int, epoch: int) -> None:
        self.seed, self.epoch = seed, epoch

    def key(self, piece: Piece) -> int:
        """64 bits of the piece's own."""
        return key_of("draw", self.seed, self.epoch, piece.document, piece.first)

    def share(self, piece: Piece) -> float:
        """A number from 0 up to 1, evenly drawn."""
        return (self.key(piece) >> 11) / 2**53


class Objective(Protocol):
    """What is to be learned from pieces of documents.

    ``name``: in settings. ``needs``: special tokens that the tokenizer must have, by their role.
    ``both_ways``: whether a prompt is read both ways in generation.
    """

    name: str
    needs: tuple[str, ...]
    both_ways: bool

    def room(self, context: int) -> int:
        """How many tokens of text a row of ``context`` positions takes."""
        ...

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        """One row of the pieces, which fit into ``room``."""
        ...


class Source(Protocol):
    """Rows by number, as ``Rows`` and ``Mixture`` are."""

    def width(self, row: int) -> int: ...

    def pieces(self, row: int) -> list[Piece]: ...


def examples(
    objective: Objective, rows: Source, numbered: Iterable[tuple[int, int]], *, seed: int = 0
) -> Example:
    """The rows of these numbers, each with its epoch, as the objective has them."""
    made = [
        objective.example(rows.pieces(row), rows.width(row), Draws(seed, epoch))
        for row, epoch in numbered
    ]
    joined: dict[str, Any] = {
        name: None if first is None else torch.cat([getattr(one, name) for one in made])
        for name, first in made[0]._parts()
    }
    return Example(**joined)


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
