"""Transformer-XL's positions: keys made from the sinusoids of distances (Dai et al. 2019)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from llmcurate.base.settings import dataclass
from train.attention import Mask, Relation, SharedMask, of_queries
from train.model.config import ModelConfig
from train.model.layers import SelfAttention, View
from train.model.position_settings import Position, position
from train.model.positions import Positions, encodes, sinusoids
from train.model.roles import Role, linear, set_roles


@position
@dataclass(frozen=True, kw_only=True)
class Distances(Position):
    """Positions of Transformer-XL. Each layer computes keys from sinusoids of the distances between
    tokens. Two learned vectors per head are added to a query, instead of a vector for the query's
    position."""

    in_attention: ClassVar[bool] = True
    title: ClassVar[str] = "Transformer-XL relative"
    kind: Literal["distances"] = "distances"

    def distance_flops(self, config: Any, context: int) -> float:
        return 2.0 * (context if config.causal else 2 * context - 1)


class DistanceAttention(SelfAttention):
    """Attention of Transformer-XL (Dai et al. 2019, section 3.3). The score of query i and key j is

        ((q_i + u) . k_j + (q_i + v) . (W r_ij)) / sqrt(head_dim)

    where r_ij are the sinusoids of the distance i - j. u and v, ``content_bias`` and
    ``distance_bias``, are learned vectors of each head.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__(config, backend)
        own = config.attention
        # It multiplies vectors of distances, not tokens.
        self.distance = linear(
            config.hidden,
            own.heads * own.head_dim,
            part="attention",
            bias=False,
            rate=1 / config.width_ratio,
            active=0.0,
        )
        self.content_bias = nn.Parameter(torch.zeros(own.heads, 1, own.head_dim))
        self.distance_bias = nn.Parameter(torch.zeros(own.heads, 1, own.head_dim))
        vector = Role(part="positions", use="vector")
        set_roles(self, content_bias=vector, distance_bias=vector)

    def forward(self, x: Tensor, view: View) -> Tensor:
        relation = view.relation
        assert relation is not None and relation.rows is not None
        q = self.queries(x, None)
        k, v = self.keys_values_in_view(x, view)
        rows = self.distance(relation.rows.to(x.dtype))
        rows = rows.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)
        to_distance = q + self.distance_bias.to(q.dtype)
        added = of_queries(to_distance, rows, relation.index) * self.head_dim**-0.5
        return self.attend_and_project(q + self.content_bias.to(q.dtype), k, v, view.mask, added)


@encodes(Distances)
class DistanceSinusoids(Positions):
    """Sines and cosines of each distance (Dai et al. 2019, section 3.3), ahead and behind.
    Distances beyond the context have the values of the longest distance within the context.
    """

    content = True
    attention = DistanceAttention
    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.causal = config.causal
        table = sinusoids(config.context, config.hidden)
        if not config.causal:  # the sine of -x is minus the sine of x
            ahead = table[1:].flip(0)
            ahead[:, 0::2] *= -1
            table = torch.cat((ahead, table))
        self.register_buffer("sinusoids", table, persistent=False)

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        count = len(self.sinusoids) if self.causal else (len(self.sinusoids) + 1) // 2
        far = count if mask.gaps else min(count, mask.keys)
        first = 0 if self.causal else far - 1  # row of distance 0
        start = 0 if self.causal else count - far
        rows = self.sinusoids[start : start + first + far]
        return Relation(rows=rows, index=(mask.distance + first).clamp(0, first + far - 1))
