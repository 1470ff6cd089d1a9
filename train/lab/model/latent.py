"""Latent attention: keys and values are made of one short vector a token, which is what is cached.

With c the compressed vector, one head of plain dimensions scores q . (K c) = (K^T q) . c and sums
V c. So in decoding K goes into the query and V into what is summed: no key or value of an earlier
token is made again, and all heads look at the same short vectors, as in multi-query attention.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train.attention import Mask, SharedMask, attend
from train.model.attention_settings import Latent
from train.model.block import ATTENTIONS
from train.model.config import ModelConfig
from train.model.layers import RMSNorm
from train.model.positions import rotate, scores_factor
from train.model.roles import linear

if TYPE_CHECKING:
    from train.model.layers import View

EPS = 1e-6  # of its own norms in DeepSeek's code, whatever that of the others is


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    ``down``: a token to its compressed vector and its rotary key, of which each is one for all
    heads. ``up``: the normed vector to each head's plain part of the key and its value. Queries are
    ``query``, or compressed and made of that: ``query_down``, ``query_norm``, ``query_up``.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        own, hidden = config.attention, config.hidden
        assert isinstance(own, Latent)
        self.own, self.backend, self.factor = own, backend, scores_factor(config)
        make = partial(linear, part="attention", bias=False)
        width = own.heads * own.head_dim
        if own.query_rank is None:
            self.query = make(hidden, width)
        else:
            self.query_down = make(hidden, own.query_rank)
            self.query_norm = RMSNorm(own.query_rank, EPS)
            self.query_up = make(own.query_rank, width)
        self.down = make(hidden, own.rank + own.rotary_dim)
        self.norm = RMSNorm(own.rank, EPS)
        self.up = make(own.rank, own.heads * (own.plain_dim + own.value_dim))
        self.out = make(own.heads * own.value_dim, hidden, shrink=config.shrink)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same."""
        rotation, mask, cache = view.rotation, view.mask, view.cache
        assert rotation is not None
        batch, length, _ = x.shape
        own = self.own
        plain, turned = self._queries(x).split((own.plain_dim, own.rotary_dim), dim=-1)
        turned = rotate(turned, rotation)
        latent, key = self.down(x)[:, None].split((own.rank, own.rotary_dim), dim=-1)
        seen = torch.cat((self.norm(latent), rotate(key, rotation)), dim=-1)
        if cache is not None:  # values are a part of what is kept as keys
            seen, _ = cache.append(seen, seen[..., :0], view.kept)
        absorbs = cache is not None and self._absorbs(length)
        mixed = (self._absorbed if absorbs else self._expanded)(plain, turned, seen, mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    def _queries(self, x: Tensor) -> Tensor:
        """[batch, heads, length, plain + rotary]."""
        own = self.own
        if own.query_rank is None:
            q = self.query(x)
        else:
            q = self.query_up(self.query_norm(self.query_down(x)))
        q = q if self.factor == 1 else q * self.factor
        return q.unflatten(-1, (-1, own.head_dim)).transpose(1, 2)

    def _absorbs(self, queries: int) -> bool:
        """Whether so many queries cost less a key on compressed vectors than keys and values cost
        to be made.
        """
        own = self.own
        wider = 2 * own.rank + own.rotary_dim - own.head_dim - own.value_dim
        return queries * wider <= own.rank * (own.plain_dim + own.value_dim)

    def _expanded(
        self, plain: Tensor, turned: Tensor, seen: Tensor, mask: Mask | SharedMask
    ) -> Tensor:
        """Each head's keys and values made of ``seen`` [batch, 1, keys, rank + rotary]: [batch,
        heads, queries, value].
        """
        own = self.own
        latent, key = seen.split((own.rank, own.rotary_dim), dim=-1)
        sizes = own.plain_dim + own.value_dim
        keys_and_values = self.up(latent[:, 0]).unflatten(-1, (-1, sizes)).transpose(1, 2)
        keys, values = keys_and_values.split((own.plain_dim, own.value_dim), dim=-1)
        q = torch.cat((plain, turned), dim=-1)
        k = torch.cat((keys, key.expand(-1, keys.shape[1], -1, -1)), dim=-1)
        return attend(q, k, values, mask, self.backend)

    def _absorbed(
        self, plain: Tensor, turned: Tensor, seen: Tensor, mask: Mask | SharedMask
    ) -> Tensor:
        """The same on the compressed vectors, which are the keys and the values of all heads."""
        own = self.own
        sizes = own.plain_dim + own.value_dim
        up = self.up.weight.to(plain.dtype).unflatten(0, (-1, sizes))
        to_keys, to_values = up.split((own.plain_dim, own.value_dim), dim=1)
        q = torch.cat((plain @ to_keys, turned), dim=-1)
        # Attention divides by the root of these dimensions, not of a head's.
        q = q * ((own.rank + own.rotary_dim) / own.head_dim) ** 0.5
        mixed = attend(q, seen, seen[..., : own.rank], mask, self.backend)
        return mixed @ to_values.transpose(1, 2)


ATTENTIONS[Latent] = LatentAttention
