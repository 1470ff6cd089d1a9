"""Objectives that predict each token from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from train import objective_settings as own
from train.data.readers import Ints
from train.data.rows import Piece, Takes
from train.data.vocabulary import Vocabulary
from train.objectives.example import IGNORED, Draws, Example, Objective, causal_row, learns


@learns(own.Causal, by=("decoder",))
class Causal(Objective):
    """Language modelling: predict each token from those before it (Radford et al. 2018). Documents
    need no special tokens. With ``across``, tokens also see the earlier documents of their row, as
    if all were one."""

    def __init__(self, settings: Any = None, tokens: Vocabulary | None = None) -> None:
        self.across = settings is not None and settings.across

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        example, _ = causal_row(pieces, context)
        if not self.across or example.documents is None:
            return example
        return replace(example, documents=example.documents.clamp(max=0))


@learns(own.Prefix, by=("decoder",))
class Prefix(Objective):
    """Predict the rest of each piece of text, one token or more, from its beginning. The beginning
    is read in both directions and not scored. Its length is drawn from the uniform distribution
    (Liu et al. 2018; Raffel et al. 2020, section 3.2.1).
    """

    @staticmethod
    def both_ways(settings: Any) -> bool:
        return True

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        plain, places = causal_row(pieces, context)
        prefix = torch.zeros(1, context, dtype=torch.bool)
        targets = plain.targets
        for piece, place in places:
            length = int(draws.share(piece) * len(piece.tokens))  # 0 to len(piece.tokens) - 1
            prefix[0, place.start : place.start + length] = True
            # The first scored target is the one after the last token of the prefix.
            targets[0, place.start : place.start + max(0, length - 1)] = IGNORED
        return replace(plain, targets=targets, prefix=prefix)


PARTS = ("prefix", "suffix", "middle")


@learns(own.FillInTheMiddle, by=("decoder",))
class FillInTheMiddle(Objective):
    """Predict the middle of a text from both sides. A share of the pieces is cut in three at two
    random places. The middle is moved to the end (Bavarian et al. 2022, sections 3 and 4.3):

    PSM  <prefix> prefix <suffix> suffix <middle> middle
    SPM  <prefix> <suffix> suffix <middle> prefix middle

    An end-of-text token follows the moved middle. Attention is causal. The three special tokens are
    not scored, because in generation they are in the prompt."""

    likelihood = False

    def __init__(self, settings: own.FillInTheMiddle, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.rate, self.spm, self.end = settings.rate, settings.spm, tokens.special["end"]
        self.marks = [tokens.special[f"fim {part}"] for part in PARTS]

    @staticmethod
    def needs(settings: own.FillInTheMiddle, context: int) -> tuple[str, ...]:
        return (*(f"fim {part}" for part in PARTS), "end")

    @staticmethod
    def takes(settings: own.FillInTheMiddle) -> Takes:
        return lambda length, context: length + 4

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        return causal_row([self.with_middle_last(piece, draws) for piece in pieces], context)[0]

    def with_middle_last(self, piece: Piece, draws: Draws) -> Piece:
        """Return the piece with its middle moved to the end, or unchanged, at random."""
        moves, spm, *cuts = draws.shares(piece, 4)
        if moves >= self.rate:
            return piece
        length = len(piece.tokens) - int(piece.tokens[-1] == self.end)
        first, second = sorted(int(share * (length + 1)) for share in cuts)
        text = np.arange(length)
        prefix, middle, suffix = text[:first], text[first:second], text[second:]
        marks = [np.array([~number]) for number in range(3)]
        if spm < self.spm:
            order = [marks[0], marks[1], suffix, marks[2], prefix, middle]
        else:
            order = [marks[0], prefix, marks[1], suffix, marks[2], middle]
        return self._read(piece, np.concatenate(order))

    def _read(self, piece: Piece, order: Ints) -> Piece:
        """Return the piece with its tokens in ``order``, then end of text. An entry ~n of ``order``
        is special token n."""
        marks = order < 0
        ids = piece.tokens[np.maximum(order, 0)]
        ids[marks] = np.array(self.marks)[~order[marks]]
        counted = ~marks
        if piece.counted is not None:
            counted &= piece.counted[np.maximum(order, 0)]
        return replace(piece, tokens=np.append(ids, self.end), counted=np.append(counted, True))
