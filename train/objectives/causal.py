"""Each token from those before it."""

from __future__ import annotations

from collections.abc import Sequence

from train.data.rows import Piece
from train.objectives.example import Draws, Example, laid_out


class Causal:
    """Language modelling (Radford et al. 2018)."""

    sparse = False
    both_ways = False

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        return laid_out(pieces, context)[0]
