"""The beginning of each document both ways, the rest causally."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from train.data.rows import Piece
from train.objectives.example import IGNORED, Draws, Example, Objective, laid_out


class Prefix(Objective):
    """The beginning of each piece, of a length drawn evenly, is read both ways and not scored; the
    rest is predicted causally (Liu et al. 2018; Raffel et al. 2020, section 3.2.1). One token at
    least is scored.
    """

    @staticmethod
    def both_ways(settings: Any) -> bool:
        return True

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        plain, places = laid_out(pieces, context)
        prefix = torch.zeros(1, context, dtype=torch.bool)
        targets = plain.targets
        for piece, place in places:
            length = int(draws.share(piece) * len(piece.tokens))  # 0 to one less than all
            prefix[0, place.start : place.start + length] = True
            # The last token of a prefix has the first scored target; the others are seen already.
            targets[0, place.start : place.start + max(0, length - 1)] = IGNORED
        return replace(plain, targets=targets, prefix=prefix)
