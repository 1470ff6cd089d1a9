"""DeBERTa's attention: what tokens say, and how far apart they are, each with the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from train.attention import of_keys, of_queries
from train.model.attention import SelfAttention
from train.model.config import ModelConfig
from train.model.position_settings import Disentangled
from train.model.roles import linear

if TYPE_CHECKING:
    from train.model.block import View


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
        k, v = self.keys_and_values(x, None)
        if view.cache is not None:
            k, v = view.cache.append(k, v, view.kept)
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
