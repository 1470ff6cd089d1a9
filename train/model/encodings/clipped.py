"""Shaw's relative positions: learned vectors for clipped distances (Shaw et al. 2018)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from llmcurate.base.settings import dataclass
from train.attention import Mask, Relation, SharedMask, of_queries
from train.model.config import ModelConfig
from train.model.layers import SelfAttention, View
from train.model.position_settings import Position, position
from train.model.positions import Positions, encodes
from train.model.roles import Role, set_roles


@position
@dataclass(frozen=True, kw_only=True)
class Clipped(Position):
    """A learned vector for each distance up to ``span``, added to the keys. Each layer has its own
    vectors, shared by its heads. Nothing is added to values, as this brings no gain in table 3 of
    Shaw et al. 2018."""

    in_attention: ClassVar[bool] = True
    title: ClassVar[str] = "clipped relative"
    kind: Literal["clipped"] = "clipped"
    span: int = Field(16, ge=1)
    """Distance in tokens from which all share the last vector."""

    def distance_flops(self, config: Any, context: int) -> float:
        return 2.0 * (self.span * (1 if config.causal else 2) + 1)


class ClippedAttention(SelfAttention):
    """Attention of Shaw et al. 2018, equations 2 and 4. The score of query i and key j is

        q_i . (k_j + a_ij) / sqrt(head_dim)

    where a_ij is the vector of the clipped distance i - j, the same for all heads.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__(config, backend)
        own, size = config.position, config.attention.head_dim
        assert isinstance(own, Clipped)
        count = own.span + 1 if config.causal else 2 * own.span + 1
        self.distances = nn.Parameter(torch.zeros(count, size))
        set_roles(self, distances=Role(part="positions", use="lookup", std=size**-0.5))

    def forward(self, x: Tensor, view: View) -> Tensor:
        assert view.relation is not None
        q = self.queries(x, None)
        k, v = self.keys_values_in_view(x, view)
        rows = self.distances.to(q.dtype)[None]
        added = of_queries(q, rows, view.relation.index) * self.head_dim**-0.5
        return self.attend_and_project(q, k, v, view.mask, added)


@encodes(Clipped)
class ClippedDistances(Positions):
    """Distances clipped to ``span``. Each layer has its own vectors (Shaw et al. 2018, 3.2)."""

    content = True
    attention = ClippedAttention

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Clipped)
        self.span, self.least = config.position.span, 0 if config.causal else -config.position.span

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        return Relation(index=mask.distance.clamp(self.least, self.span) - self.least)
