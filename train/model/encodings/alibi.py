"""ALiBi: scores less the distance times a slope (Press et al. 2022)."""

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
    """A number for the distance and the head, taken off each score."""

    title: ClassVar[str] = "ALiBi"
    kind: Literal["alibi"] = "alibi"


def alibi_slopes(heads: int) -> Tensor:
    """float32 [heads]: 2 ** (-8 i / heads); for heads that are no power of two, those of the power
    below and every second one of the power above (Press et al. 2022).
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes + extra)


@encodes(Alibi)
class Slopes(Positions):
    """Scores less the distance times the head's slope (Press et al. 2022)."""

    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        slopes = alibi_slopes(config.attention.heads)
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self) -> AlibiBias:
        return AlibiBias(slopes=self.slopes[self.heads])
