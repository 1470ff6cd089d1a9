"""Each token from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from train.data.rows import Piece
from train.data.vocabulary import Vocabulary
from train.objectives.example import Draws, Example, Objective, laid_out


class Causal(Objective):
    """Language modelling (Radford et al. 2018). It has no settings and needs no special token."""

    def __init__(self, settings: Any = None, tokens: Vocabulary | None = None) -> None:
        pass

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        return laid_out(pieces, context)[0]
