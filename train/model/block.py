"""The block: attention and feed-forward on the residual stream.

pre       x = x + attention(norm(x));  x = x + mlp(norm(x))          (Radford et al. 2019)
post      x = norm(x + attention(x));  x = norm(x + mlp(x))          (Vaswani et al. 2017)
sandwich  x = x + norm(attention(norm(x))), the same for mlp         (Ding et al. 2021)
parallel  x = x + attention(norm(x)) + mlp(norm(x))                  (Wang and Komatsuzaki 2021)
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from train.attention import Mask, attend
from train.model.cache import LayerCache
from train.model.config import ModelConfig
from train.model.layers import MLP, RMSNorm, norm
from train.model.positions import rotate


class SelfAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023); MHA and MQA are its ends."""

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim, self.backend = config.head_dim, backend
        qkv, out = config.bias in ("all", "qkv"), config.bias == "all"
        self.query = nn.Linear(config.hidden, config.heads * config.head_dim, bias=qkv)
        self.key = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=qkv)
        self.value = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=qkv)
        self.out = nn.Linear(config.heads * config.head_dim, config.hidden, bias=out)
        size = config.head_dim
        self.query_norm = RMSNorm(size, config.norm_eps) if config.qk_norm else None
        self.key_norm = RMSNorm(size, config.norm_eps) if config.qk_norm else None

    def forward(
        self,
        x: Tensor,
        rotation: Tensor | None,
        mask: Mask,
        cache: LayerCache | None,
        kept: Tensor | None,
    ) -> Tensor:
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.key(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.value(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            k, v = cache.append(k, v, kept)
        mixed = attend(q, k, v, mask, self.backend)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """x [batch, length, hidden] to the same. ``attention_norm`` and ``mlp_norm`` come before the
    parts, or after the sum where ``norm_place`` is post; the ``_out_norm`` are sandwich's.
    """

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        self.norm_place, self.parallel = config.norm_place, config.parallel
        self.dropout = config.dropout
        shared = config.parallel and config.parallel_norms == 1
        sandwich = config.norm_place == "sandwich"
        self.attention_norm = norm(config)
        self.attention = SelfAttention(config, backend)
        self.attention_out_norm = norm(config) if sandwich else None
        self.mlp_norm = None if shared else norm(config)
        self.mlp = MLP(config)
        self.mlp_out_norm = norm(config) if sandwich else None

    def forward(
        self,
        x: Tensor,
        rotation: Tensor | None,
        mask: Mask,
        cache: LayerCache | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        if self.parallel:
            read = self.attention_norm(x)
            other = read if self.mlp_norm is None else self.mlp_norm(x)
            mixed = self.attention(read, rotation, mask, cache, kept)
            return x + self._drop(mixed + self.mlp(other))
        assert self.mlp_norm is not None
        if self.norm_place == "post":
            mixed = self.attention(x, rotation, mask, cache, kept)
            x = self.attention_norm(x + self._drop(mixed))
            return self.mlp_norm(x + self._drop(self.mlp(x)))
        mixed = self.attention(self.attention_norm(x), rotation, mask, cache, kept)
        if self.attention_out_norm is not None:
            mixed = self.attention_out_norm(mixed)
        x = x + self._drop(mixed)
        changed = self.mlp(self.mlp_norm(x))
        if self.mlp_out_norm is not None:
            changed = self.mlp_out_norm(changed)
        return x + self._drop(changed)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x
