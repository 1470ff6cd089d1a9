"""DeBERTa's positions: scores compare contents with contents, and contents with distances."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from llmcurate.base.settings import dataclass, refuse_if
from train.attention import Mask, Relation, SharedMask, of_keys, of_queries
from train.model.config import ModelConfig
from train.model.layers import SelfAttention, View, norm
from train.model.position_settings import Position, position
from train.model.positions import EMBEDDING, Positions, encodes
from train.model.roles import Role, linear, set_roles


@position
@dataclass(frozen=True, kw_only=True)
class Disentangled(Position):
    """A learned vector for each distance, shared by the layers. From this vector each layer
    computes a key and a query, which are compared with a token's query and key."""

    in_attention: ClassVar[bool] = True
    title: ClassVar[str] = "disentangled relative"
    kind: Literal["disentangled"] = "disentangled"
    span: int = Field(512, ge=2)
    """Distance in tokens from which all share the last vector."""
    buckets: int | None = Field(None, ge=4)
    """Vectors to either side: half are for single distances, half for ranges that grow with the
    logarithm up to span (DeBERTa-v2). Without a value one per distance."""
    norm: bool = False
    """Apply a norm to the vectors (DeBERTa-v2)."""
    shared: bool = False
    """Use each layer's matrices for tokens also for the keys and queries of distances
    (DeBERTa-v2)."""

    def __post_init__(self) -> None:
        refuse_if(
            self.buckets is not None and self.span < 2 * self.buckets,
            f"position.buckets is {self.buckets}: set position.span to twice as much or more",
        )

    def distance_flops(self, config: Any, context: int) -> float:
        return 4.0 * (2 * min(self.buckets or self.span, context))


class DisentangledAttention(SelfAttention):
    """Attention of He et al. 2021, section 3.1. The score of query i and key j is

        (q_i . k_j + q_i . s_ij + k_j . r_ij) / sqrt(3 head_dim)

    where s_ij and r_ij are a key and a query made from the vector of the distance i - j. The paper
    has j - i in the last term. The authors' code, and so all models trained with it, has i - j in
    both terms.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__(config, backend)
        own, position = config.attention, config.position
        assert isinstance(position, Disentangled)
        # They multiply vectors of distances, not tokens.
        make = partial(
            linear, config.hidden, part="attention", rate=1 / config.width_ratio, active=0.0
        )
        widths = own.kv_heads * own.head_dim, own.heads * own.head_dim
        self.position_key: nn.Linear | None = None
        self.position_query: nn.Linear | None = None
        if not position.shared:
            self.position_key = make(widths[0], bias=self.key_bias)
            self.position_query = make(widths[1], bias=self.query.bias is not None)

    def forward(self, x: Tensor, view: View) -> Tensor:
        relation = view.relation
        assert relation is not None and relation.rows is not None
        q = self.queries(x, None)
        k, v = self.keys_values_in_view(x, view)
        key = self._by_head((self.position_key or self.key)(relation.rows), q.shape[1])
        query = self._by_head((self.position_query or self.query)(relation.rows), q.shape[1])
        every = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        added = of_queries(q, key, relation.index) + of_keys(every, query, relation.index)
        shrink = 3**-0.5
        return self.attend_and_project(
            q * shrink, k, v, view.mask, added * (shrink * self.head_dim**-0.5)
        )

    def _by_head(self, x: Tensor, heads: int) -> Tensor:
        split = x.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)
        return split.repeat_interleave(heads // split.shape[0], dim=0)


@encodes(Disentangled)
class DistanceVectors(Positions):
    """A learned vector for each distance i - j of query and key, or for each bucket of distances.
    Keys before and after the query have different vectors (He et al. 2021, section 3.1, and their
    code)."""

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
        set_roles(self, weight=Role(part="positions", use="lookup", std=std))
        self.norm = norm(config) if own.norm else nn.Identity()

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        index = self.bucket(mask.distance)
        far = self.count if mask.gaps else min(self.count, mask.keys)  # distances that can occur
        rows = self.weight[self.count - far : self.count + far]
        return Relation(rows=self.norm(rows), index=(index + far).clamp(0, 2 * far - 1))

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance, or the distance itself if there are no ``buckets``.
        Half of the buckets have one distance each; the others widen logarithmically up to ``span``
        - 1."""
        if self.buckets is None:
            return distance
        middle = self.buckets // 2
        away = distance.abs().clamp(min=middle)
        last = torch.log(torch.tensor((self.span - 1) / middle, device=distance.device))
        ratio = torch.log(away / middle) / last
        large = (torch.ceil(ratio * (middle - 1)) + middle).long()
        return torch.where(distance.abs() <= middle, distance, large * distance.sign())
