"""ALiBi: the distance times a slope is subtracted from each score (Press et al. 2022)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from llmcurate.base.settings import dataclass
from train.attention import Alibi as AlibiBias
from train.model.config import ModelConfig
from train.model.position_settings import Position, position
from train.model.positions import Positions, encodes


@position
@dataclass(frozen=True, kw_only=True)
class Alibi(Position):
    """ALiBi: the distance times the head's slope is subtracted from each score."""

    title: ClassVar[str] = "ALiBi"
    kind: Literal["alibi"] = "alibi"


def alibi_slopes(heads: int) -> Tensor:
    """Return the slope of each head i, counted from 1: 2 ** (-8 i / heads), float32 [heads]. If
    ``heads`` is not a power of two: the slopes for the next lower power, then every second slope
    for the next higher power (Press et al. 2022)."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes + extra)


@encodes(Alibi)
class Slopes(Positions):
    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        slopes = alibi_slopes(config.attention.heads)
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self) -> AlibiBias:
        return AlibiBias(slopes=self.slopes[self.heads])
