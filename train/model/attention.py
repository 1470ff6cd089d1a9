"""Attention: tokens look at those that the mask lets them see, or at what an encoder has read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train.attention import Mask, SharedMask, attend
from train.model.config import ModelConfig
from train.model.norms import RMSNorm
from train.model.roles import linear
from train.model.rope import rotate

if TYPE_CHECKING:
    from train.model.block import View


class SelfAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023); MHA and MQA are its ends."""

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        own, hidden = config.attention, config.hidden
        self.head_dim, self.backend = own.head_dim, backend
        qkv, out = own.bias != "none", own.bias in ("all", "but_keys")
        self.key_bias = qkv and own.bias != "but_keys"
        width, kv_width = own.heads * own.head_dim, own.kv_heads * own.head_dim
        make = partial(linear, part="attention", rate=1 / config.wider)
        self.query = make(hidden, width, bias=qkv, split="outputs")
        self.key = make(hidden, kv_width, bias=self.key_bias, split="outputs")
        self.value = make(hidden, kv_width, bias=qkv, shrink=config.gain, split="outputs")
        self.out = make(width, hidden, bias=out, shrink=config.shrink, split="inputs")
        of_head = partial(RMSNorm, own.head_dim, config.norm.eps, split="heads")
        self.query_norm = of_head() if own.qk_norm else None
        self.key_norm = of_head() if own.qk_norm else None

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same, by the heads that this process has."""
        q = self.queries(x, view.rotation)
        return self.mixed(q, *self.met(x, view), view.mask)

    def met(self, x: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Keys and values that queries may meet: those of a cache and of these tokens. Where the
        mask has a memory, these tokens' come twice, first as the memory, which changes nothing but
        the matrices.
        """
        k, v = self.keys_and_values(x, view.rotation)
        if isinstance(view.mask, Mask) and view.mask.memory:
            memory = self.keys_and_values(x.detach(), view.rotation)
            k, v = torch.cat((memory[0], k), dim=2), torch.cat((memory[1], v), dim=2)
        return (k, v) if view.cache is None else view.cache.append(k, v, view.kept)

    def queries(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        """[batch, heads, length, head_dim]."""
        q = self.query(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q = q if self.query_norm is None else self.query_norm(q)
        return q if rotation is None else rotate(q, rotation)

    def keys_and_values(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """[batch, kv_heads, length, head_dim] each."""
        k = self.key(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        v = self.value(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        k = k if self.key_norm is None else self.key_norm(k)
        return (k if rotation is None else rotate(k, rotation)), v

    def mixed(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | SharedMask, added: Tensor | None = None
    ) -> Tensor:
        """What queries gather of the keys and values they see, by scores with ``added``: [batch,
        length, hidden].
        """
        summed = attend(q, k, v, mask, self.backend, added)
        return self.out(summed.transpose(1, 2).flatten(-2))


class CrossAttention(SelfAttention):
    """Tokens look at what an encoder made of a source (Vaswani et al. 2017, section 3.2.3), without
    positions. A cache keeps its keys and values, which are made once.
    """

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[batch, length, hidden] to the same."""
        assert view.cross is not None
        pair = None if view.cache is None else view.cache.cross
        if pair is None:
            assert view.encoded is not None
            pair = self.keys_and_values(view.encoded, None)
            if view.cache is not None:
                view.cache.cross = pair
        return self.mixed(self.queries(x, None), *pair, view.cross)
