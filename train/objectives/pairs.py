"""Two segments of a text, of which some are exchanged, and hidden tokens in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from train.data.rows import Piece, Takes
from train.data.vocabulary import Vocabulary
from train.objective_settings import Masked as Settings
from train.objective_settings import NextSentence
from train.objectives.example import IGNORED, Draws, Example, Objective
from train.objectives.masked import Masked

if TYPE_CHECKING:
    from train.data.feed import Feed


class Pairs(Objective):
    """A piece is cut in two, near its middle, with a separator between them: do they belong
    together? Tokens are hidden as by ``Masked``.

    Of ``NextSentence`` half of the second segments are taken from other documents (Devlin et al.
    2019), of ``SentenceOrder`` half of the pieces have their segments in the wrong order (Lan et
    al. 2020).
    """

    sparse = True
    likelihood = False

    def __init__(self, settings: Settings, tokens: Vocabulary) -> None:
        super().__init__(settings, tokens)
        self.masked, self.next = Masked(settings, tokens), isinstance(settings, NextSentence)
        self.separator = tokens.special["sep"]

    def study(self, feed: Feed) -> None:
        self.masked.study(feed)

    @staticmethod
    def needs(settings: Settings, context: int) -> tuple[str, ...]:
        return (*Masked.needs(settings, context), "sep")

    @staticmethod
    def takes(settings: Settings) -> Takes:
        return lambda length, context: length + 1  # the separator

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        ids, targets, documents, segments, pairs = (
            np.full((1, context), fill, np.int64) for fill in (0, IGNORED, -1, 0, IGNORED)
        )
        filled = 0
        for piece in pieces:
            begin, first, second = self._halves(piece, draws)
            wrong = draws.shares(piece, 1, 4)[0] < 0.5
            if wrong and not self.next:
                first, second = second, first
            elif wrong:
                other = draws.other(piece)
                wrong = other is not None
                if other is not None:
                    second = self._halves(other, draws)[2][:, : second.shape[1]]
            separator = np.array([[self.separator], [IGNORED]])
            row = np.concatenate([begin, first, separator, second], axis=1)
            place = slice(filled, filled + row.shape[1])
            ids[0, place], targets[0, place] = row
            documents[0, place] = piece.document
            segments[0, filled + 2 + first.shape[1] : place.stop] = 1
            pairs[0, filled] = int(wrong)
            filled = place.stop
        tensors = (torch.from_numpy(x) for x in (ids, targets, documents, segments, pairs))
        names = ("inputs", "targets", "documents", "segments", "pairs")
        return Example(**dict(zip(names, tensors, strict=True)))

    def _halves(self, piece: Piece, draws: Draws) -> tuple[npt.NDArray[np.int64], ...]:
        """What a piece begins with, and its segments: [2, tokens] each, shown and to be found."""
        read = np.append(piece.before, piece.tokens[:-1])
        both = np.stack(self.masked.hide(piece, read, draws))
        middle = 1 + int((0.25 + 0.5 * draws.shares(piece, 1, 5)[0]) * (len(read) - 1))
        return both[:, :1], both[:, 1:middle], both[:, middle:]
