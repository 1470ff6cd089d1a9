"""Attention by vectors of distances: Shaw's and Transformer-XL's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train.attention import of_queries
from train.model.attention import SelfAttention
from train.model.config import ModelConfig
from train.model.position_settings import Clipped
from train.model.roles import Role, give, linear

if TYPE_CHECKING:
    from train.model.block import View


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
        k, v = self.keys_and_values(x, None)
        if view.cache is not None:
            k, v = view.cache.append(k, v, view.kept)
        rows = self.distances.to(q.dtype)[None]
        added = of_queries(q, rows, view.relation.index) * self.head_dim**-0.5
        return self.mixed(q, k, v, view.mask, added)


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
        k, v = self.keys_and_values(x, None)
        if view.cache is not None:
            k, v = view.cache.append(k, v, view.kept)
        rows = self.distance(relation.rows.to(x.dtype))
        rows = rows.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)
        to_distance = q + self.distance_bias.to(q.dtype)
        added = of_queries(to_distance, rows, relation.index) * self.head_dim**-0.5
        return self.mixed(q + self.content_bias.to(q.dtype), k, v, view.mask, added)
