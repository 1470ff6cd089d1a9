"""Self-attention: tokens look at those that the mask lets them see."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from train.attention import Mask, SharedMask, attend
from train.model.cache import LayerCache
from train.model.config import ModelConfig
from train.model.norms import RMSNorm
from train.model.positions import rotate
from train.model.roles import linear


class SelfAttention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023); MHA and MQA are its ends."""

    def __init__(self, config: ModelConfig, backend: str) -> None:
        super().__init__()
        own, hidden = config.attention, config.hidden
        self.head_dim, self.backend = own.head_dim, backend
        qkv, out = own.bias in ("all", "qkv"), own.bias == "all"
        width, kv_width = own.heads * own.head_dim, own.kv_heads * own.head_dim
        make = partial(linear, part="attention", rate=1 / config.wider)
        self.query = make(hidden, width, bias=qkv, split="outputs")
        self.key = make(hidden, kv_width, bias=qkv, split="outputs")
        self.value = make(hidden, kv_width, bias=qkv, split="outputs")
        shrink = (2 * config.layers) ** -0.5
        self.out = make(width, hidden, bias=out, shrink=shrink, split="inputs")
        of_head = partial(RMSNorm, own.head_dim, config.norm.eps, split="heads")
        self.query_norm = of_head() if own.qk_norm else None
        self.key_norm = of_head() if own.qk_norm else None

    def forward(
        self,
        x: Tensor,
        rotation: Tensor | None,
        mask: Mask | SharedMask,
        cache: LayerCache | None,
        kept: Tensor | None,
    ) -> Tensor:
        """[batch, length, hidden] to the same, by the heads that this process has."""
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        k = self.key(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        v = self.value(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if cache is not None:
            k, v = cache.append(k, v, kept)
        mixed = attend(q, k, v, mask, self.backend)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
