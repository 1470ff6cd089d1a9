"""Vectors of distances, and attention by them: Shaw's and Transformer-XL's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train.attention import Mask, Relation, SharedMask, of_queries
from train.model.attention import SelfAttention
from train.model.config import ModelConfig
from train.model.position_settings import Clipped
from train.model.positions import Positions, sinusoids
from train.model.roles import Role, give, linear

if TYPE_CHECKING:
    from train.model.block import View


class ClippedDistances(Positions):
    """Distances up to the span, for which each layer has vectors (Shaw et al. 2018, 3.2)."""

    content = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Clipped)
        self.span, self.least = config.position.span, 0 if config.causal else -config.position.span

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        return Relation(index=mask.distance.clamp(self.least, self.span) - self.least)


class ClippedAttention(SelfAttention):
    """Shaw et al. 2018, equations 2 and 4: the score of query i and key j is

        q_i . (k_j + a_ij) / sqrt(head_dim)

    where a is the vector of the clipped distance i - j, the same for all heads.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__(config, backend)
        own, size = config.position, config.attention.head_dim
        assert isinstance(own, Clipped)
        count = own.span + 1 if config.causal else 2 * own.span + 1
        self.distances = nn.Parameter(torch.zeros(count, size))
        give(self, distances=Role(part="positions", use="lookup", std=size**-0.5))

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same."""
        assert view.relation is not None
        q = self.queries(x, None)
        k, v = self.met(x, view)
        rows = self.distances.to(q.dtype)[None]
        added = of_queries(q, rows, view.relation.index) * self.head_dim**-0.5
        return self.mixed(q, k, v, view.mask, added)


class DistanceSinusoids(Positions):
    """Sines and cosines of each distance (Dai et al. 2019, section 3.3), from the farthest key
    ahead to the farthest behind; beyond the context they are those of its last.
    """

    content = True
    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.causal = config.causal
        table = sinusoids(config.context, config.hidden)
        if not config.causal:  # the sine of a negative distance is minus the other's
            ahead = table[1:].flip(0)
            ahead[:, 0::2] *= -1
            table = torch.cat((ahead, table))
        self.register_buffer("sinusoids", table, persistent=False)

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        count = len(self.sinusoids) if self.causal else (len(self.sinusoids) + 1) // 2
        far = count if mask.gaps else min(count, mask.keys)
        first = 0 if self.causal else far - 1  # of the rows that may be met, distance 0
        start = 0 if self.causal else count - far
        rows = self.sinusoids[start : start + first + far]
        return Relation(rows=rows, index=(mask.distance + first).clamp(0, first + far - 1))


class DistanceAttention(SelfAttention):
    """Dai et al. 2019 (Transformer-XL), section 3.3: the score of query i and key j is

        ((q_i + u) . k_j + (q_i + v) . (W r_ij)) / sqrt(head_dim)

    where r are the sinusoids of the distance i - j, and u and v, ``content_bias`` and
    ``distance_bias``, learned vectors of each head.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__(config, backend)
        own = config.attention
        # It multiplies vectors of distances, no tokens.
        self.distance = linear(
            config.hidden,
            own.heads * own.head_dim,
            part="attention",
            bias=False,
            rate=1 / config.wider,
            met=0.0,
        )
        self.content_bias = nn.Parameter(torch.zeros(own.heads, 1, own.head_dim))
        self.distance_bias = nn.Parameter(torch.zeros(own.heads, 1, own.head_dim))
        vector = Role(part="positions", use="vector")
        give(self, content_bias=vector, distance_bias=vector)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same."""
        relation = view.relation
        assert relation is not None and relation.rows is not None
        q = self.queries(x, None)
        k, v = self.met(x, view)
        rows = self.distance(relation.rows.to(x.dtype))
        rows = rows.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)
        to_distance = q + self.distance_bias.to(q.dtype)
        added = of_queries(to_distance, rows, relation.index) * self.head_dim**-0.5
        return self.mixed(q + self.content_bias.to(q.dtype), k, v, view.mask, added)
