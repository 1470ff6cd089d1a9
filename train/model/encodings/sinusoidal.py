"""Sines and cosines of positions, added to the embedding (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from llmcurate.base.settings import dataclass
from train.model.config import ModelConfig
from train.model.position_settings import Position, position
from train.model.positions import Positions, encodes, sinusoids


@position
@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Position):
    """The settings of sines and cosines that are added to sqrt(hidden) times the embedding."""

    table: ClassVar[bool] = True
    title: ClassVar[str] = "sinusoidal"
    kind: Literal["sinusoidal"] = "sinusoidal"


@encodes(Sinusoidal)
class Sinusoids(Positions):
    """Sines and cosines, added to sqrt(hidden) times the embedding (Vaswani et al. 2017)."""

    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        table = sinusoids(config.context, config.position_dim)
        self.register_buffer("sinusoids", table, persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x * x.shape[-1] ** 0.5 + self.sinusoids[positions].to(x.dtype)
