"""Latent attention: keys and values are computed from one short cached vector per token.

Let c be that vector, q the query of a head, and K and V the head's matrices for keys and values.
The score is q . (K c) = (K^T q) . c, and the head's output is a weighted sum of the vectors V c. So
in decoding, K^T can be applied to the query, and V to the weighted sum of the vectors c. All heads
then attend to the short vectors, as in multi-query attention, and the keys and values of earlier
tokens need not be computed.
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

EPS = 1e-6  # of the norms inside attention: fixed in DeepSeek's code


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). ``down`` maps a
    token to its compressed vector and the rotated part of its key, which all heads share. ``up``
    maps the normalised vector to the other part of each head's key and to its value. Queries come
    from ``query``, or, if compressed, from ``query_down``, ``query_norm`` and ``query_up``."""

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
        self.out = make(own.heads * own.value_dim, hidden, shrink=config.residual_scale)

    def forward(self, x: Tensor, view: View) -> Tensor:
        rotation, mask, cache = view.rotation, view.mask, view.cache
        assert rotation is not None
        batch, length, _ = x.shape
        own = self.own
        if own.query_rank is None:
            q = self.query(x)
        else:
            q = self.query_up(self.query_norm(self.query_down(x)))
        q = q if self.factor == 1 else q * self.factor
        q = q.unflatten(-1, (-1, own.head_dim)).transpose(1, 2)
        plain, rotary = q.split((own.plain_dim, own.rotary_dim), dim=-1)
        rotary = rotate(rotary, rotation)
        latent, key = self.down(x)[:, None].split((own.rank, own.rotary_dim), dim=-1)
        latents = torch.cat((self.norm(latent), rotate(key, rotation)), dim=-1)
        if cache is not None:  # the cached keys contain the values
            latents, _ = cache.append(latents, latents[..., :0], view.kept)
        absorbs = cache is not None and self.absorbs(length)
        mixed = (self._absorbed if absorbs else self._expanded)(plain, rotary, latents, mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    def absorbs(self, queries: int) -> bool:
        """Return True if this many queries cost less on compressed vectors than on whole keys."""
        own = self.own
        wider = 2 * own.rank + own.rotary_dim - own.head_dim - own.value_dim
        return queries * wider <= own.rank * (own.plain_dim + own.value_dim)

    def _expanded(
        self, plain: Tensor, rotary: Tensor, latents: Tensor, mask: Mask | SharedMask
    ) -> Tensor:
        own = self.own
        latent, key = latents.split((own.rank, own.rotary_dim), dim=-1)
        sizes = own.plain_dim + own.value_dim
        keys_and_values = self.up(latent[:, 0]).unflatten(-1, (-1, sizes)).transpose(1, 2)
        keys, values = keys_and_values.split((own.plain_dim, own.value_dim), dim=-1)
        q = torch.cat((plain, rotary), dim=-1)
        k = torch.cat((keys, key.expand(-1, keys.shape[1], -1, -1)), dim=-1)
        return attend(q, k, values, mask, self.backend)

    def _absorbed(
        self, plain: Tensor, rotary: Tensor, latents: Tensor, mask: Mask | SharedMask
    ) -> Tensor:
        own = self.own
        sizes = own.plain_dim + own.value_dim
        up = self.up.weight.to(plain.dtype).unflatten(0, (-1, sizes))
        to_keys, to_values = up.split((own.plain_dim, own.value_dim), dim=1)
        q = torch.cat((plain @ to_keys, rotary), dim=-1)
        # ``attend`` divides by the root of these dimensions: make it the root of head_dim.
        q = q * ((own.rank + own.rotary_dim) / own.head_dim) ** 0.5
        mixed = attend(q, latents, latents[..., : own.rank], mask, self.backend)
        return mixed @ to_values.transpose(1, 2)


ATTENTIONS[Latent] = LatentAttention
