"""DeBERTa's positions: what tokens say, and how far apart they are, each with the other."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from llmcurate.base.settings import dataclass, refuse
from train.attention import Mask, Relation, SharedMask, of_keys, of_queries
from train.model.config import ModelConfig
from train.model.layers import SelfAttention, View, norm
from train.model.position_settings import Position, position
from train.model.positions import EMBEDDING, Positions, encodes
from train.model.roles import Role, give, linear


@position
@dataclass(frozen=True, kw_only=True)
class Disentangled(Position):
    """A learned vector for each distance, shared by the layers, which each make a key and a query
    of it that meet the queries and keys of tokens.
    """

    in_attention: ClassVar[bool] = True
    title: ClassVar[str] = "disentangled relative"
    kind: Literal["disentangled"] = "disentangled"
    span: int = Field(
        512, ge=2, description="Distance in tokens from which on all share the last vector."
    )
    buckets: int | None = Field(
        None,
        ge=4,
        description="Vectors to either side: for half of them single distances, then more by the "
        "logarithm up to span (DeBERTa-v2). Without a value one for each distance.",
    )
    norm: bool = Field(False, description="Whether the vectors are normed (DeBERTa-v2).")
    shared: bool = Field(
        False,
        description="Whether each layer's matrices of tokens make keys and queries of them too "
        "(v2).",
    )

    def __post_init__(self) -> None:
        refuse(
            self.buckets is not None and self.span < 2 * self.buckets,
            f"position.buckets is {self.buckets}: give position.span of twice as much or more",
        )

    def flops_beside(self, config: Any, context: int) -> float:
        """Of queries and of keys with the vectors of the distances."""
        return 4.0 * (2 * min(self.buckets or self.span, context))


class DisentangledAttention(SelfAttention):
    """He et al. 2021, section 3.1: the score of query i and key j is

        (q_i . k_j + q_i . s_ij + k_j . r_ij) / sqrt(3 head_dim)

    where s and r are keys and queries made of the vector of the distance i - j. The paper has j - i
    in the last term; their code, and all that was trained with it, has i - j in both.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__(config, backend)
        own, position = config.attention, config.position
        assert isinstance(position, Disentangled)
        # They multiply vectors of distances, no tokens.
        make = partial(linear, config.hidden, part="attention", rate=1 / config.wider, met=0.0)
        widths = own.kv_heads * own.head_dim, own.heads * own.head_dim
        self.position_key: nn.Linear | None = None
        self.position_query: nn.Linear | None = None
        if not position.shared:
            self.position_key = make(widths[0], bias=self.key_bias)
            self.position_query = make(widths[1], bias=self.query.bias is not None)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same."""
        relation = view.relation
        assert relation is not None and relation.rows is not None
        q = self.queries(x, None)
        k, v = self.met(x, view)
        key = self._by_head((self.position_key or self.key)(relation.rows), q.shape[1])
        query = self._by_head((self.position_query or self.query)(relation.rows), q.shape[1])
        every = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        added = of_queries(q, key, relation.index) + of_keys(every, query, relation.index)
        shrink = 3**-0.5
        return self.mixed(q * shrink, k, v, view.mask, added * (shrink * self.head_dim**-0.5))

    def _by_head(self, x: Tensor, heads: int) -> Tensor:
        """[distances, ...] to [heads, distances, head_dim], those of keys repeated in turn."""
        split = x.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)
        return split.repeat_interleave(heads // split.shape[0], dim=0)


@encodes(Disentangled)
class DistanceVectors(Positions):
    """A learned vector for each distance i - j of query and key, or bucket of them, by rows from
    the farthest key ahead to the farthest behind (He et al. 2021, section 3.1, and their code).
    """

    content = True
    attention = DisentangledAttention

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        own = config.position
        assert isinstance(own, Disentangled)
        self.span, self.buckets = own.span, own.buckets
        self.count = own.span if own.buckets is None else own.buckets  # to either side
        self.weight = nn.Parameter(torch.zeros(2 * self.count, config.hidden))
        std = EMBEDDING * config.hidden**-0.5
        give(self, weight=Role(part="positions", use="lookup", std=std))
        self.norm = norm(config) if own.norm else nn.Identity()

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        index = self.bucket(mask.distance)
        far = self.count if mask.gaps else min(self.count, mask.keys)  # rows that may be met
        rows = self.weight[self.count - far : self.count + far]
        return Relation(rows=self.norm(rows), index=(index + far).clamp(0, 2 * far - 1))

    def bucket(self, distance: Tensor) -> Tensor:
        """Distances as they are, or those from half of the buckets on by their logarithm, which
        grows to the last bucket at ``span`` - 1.
        """
        if self.buckets is None:
            return distance
        middle = self.buckets // 2
        away = distance.abs().clamp(min=middle)
        last = torch.log(torch.tensor((self.span - 1) / middle, device=distance.device))
        ratio = torch.log(away / middle) / last
        large = (torch.ceil(ratio * (middle - 1)) + middle).long()
        return torch.where(distance.abs() <= middle, distance, large * distance.sign())
