"""T5's relative positions: a number for each bucket of distances and head (Raffel et al. 2020)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from llmcurate.base.settings import dataclass, refuse_if
from train.attention import Relative
from train.model.config import ModelConfig
from train.model.position_settings import Position, position
from train.model.positions import Positions, encodes
from train.model.roles import Role, set_roles


@position
@dataclass(frozen=True, kw_only=True)
class Buckets(Position):
    """The settings of T5's relative positions: a learned number for each pair of distance bucket
    and head, added to scores. All layers share these numbers."""

    title: ClassVar[str] = "T5 buckets"
    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=2)
    """Buckets of distances."""
    distance: int = Field(128, ge=1)
    """Distance in tokens from which all share the last bucket."""

    def __post_init__(self) -> None:
        refuse_if(
            self.distance <= self.buckets // 2,
            "position.distance must be over half of position.buckets",
        )


@encodes(Buckets)
class RelativeBuckets(Positions):
    """A number for each head and bucket of distances, added to scores (Raffel et al. 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Buckets)
        self.distance, self.both_ways = config.position.distance, not config.causal
        self.weight = nn.Parameter(torch.zeros(config.position.buckets, config.attention.heads))
        set_roles(self, weight=Role(part="positions", use="lookup", std=0.02, split="heads"))

    def bias(self) -> Relative:
        weight = self.weight[:, self.heads]
        return Relative(weight=weight, distance=self.distance, both_ways=self.both_ways)
