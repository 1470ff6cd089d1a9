"""Examples of masked language modelling."""

from __future__ import annotations

import numpy as np
import torch

from train.data.rows import Piece
from train.data.vocabulary import Vocabulary
from train.objectives.example import IGNORED

VOCABULARY = Vocabulary(
    size=1003, special={"mask": 1001, "sep": 1002}, reserved=frozenset((1000, 1001, 1002))
)


def piece(length: int, *, first: int = 0, document: int = 0, start: int = 0) -> Piece:
    tokens = np.arange(start, start + length, dtype=np.int64) % 1000
    return Piece(document=document, first=first, before=1000, tokens=tokens)


class Shares:
    """Draws of the numbers that a test gives, by what they decide on."""

    def __init__(self, *tables: list[float]) -> None:
        self.tables = tables

    def shares(self, piece: Piece, count: int, stream: int = 0):
        return np.array(self.tables[stream][:count])


def put_back(row) -> torch.Tensor:
    """The tokens as they were."""
    return torch.where(row.targets == IGNORED, row.inputs, row.targets)
