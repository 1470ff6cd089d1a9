"""Each token from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from train.data.rows import Piece
from train.data.vocabulary import Vocabulary
from train.objectives.example import Draws, Example, Objective, laid_out


class Causal(Objective):
    """Language modelling (Radford et al. 2018); it needs no special token. Settings ``across``: the
    documents of a row are one to the model, end of text before each but the first."""

    def __init__(self, settings: Any = None, tokens: Vocabulary | None = None) -> None:
        self.across = settings is not None and settings.across

    def example(self, pieces: Sequence[Piece], context: int, draws: Draws) -> Example:
        example, _ = laid_out(pieces, context)
        if not self.across or example.documents is None:
            return example
        return replace(example, documents=example.documents.clamp(max=0))
