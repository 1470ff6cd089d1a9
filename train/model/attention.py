"""Self-attention: projections, the norm of queries and keys, rotation, and ``attend``."""

from __future__ import annotations

from torch import Tensor, nn

from train.attention import Mask, attend
from train.model.cache import LayerCache
from train.model.config import ModelConfig
from train.model.layers import RMSNorm
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
