"""The layers of the decoder: norms, feed-forward, attention, and the block that joins them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.attention import Mask, attend
from train.model.cache import LayerCache
from train.model.config import MLPS, ModelConfig
from train.model.positions import rotate


def _relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "relu2": _relu2,
}


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in float32 or wider (Zhang and Sennrich 2019)."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        if torch.compiler.is_compiling() or x.is_cuda:
            y = y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
        else:
            y = _ScaleByRms.apply(y, self.weight, self.eps)
        return y.to(x.dtype)


class _ScaleByRms(torch.autograd.Function):
    """The same with its gradient written out: a third of the time on a CPU, where each small
    operation reads and writes all of x, and one tensor kept instead of two.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        mean = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        scale = mean.add_(eps).rsqrt_()
        y = x * scale
        ctx.save_for_backward(y, weight, scale)
        return y * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        y, weight, scale = ctx.saved_tensors
        of_weight = (grad * y).flatten(0, -2).sum(dim=0)
        grad = grad * weight
        along = (grad * y).mean(dim=-1, keepdim=True)
        return torch.addcmul(grad, y, along, value=-1).mul_(scale), of_weight, None


class LayerNorm(nn.Module):
    """(x - mean) / deviation * weight + bias (Ba et al. 2016); without one or both by option."""

    def __init__(self, hidden: int, eps: float, *, weight: bool, bias: bool) -> None:
        super().__init__()
        self.hidden, self.eps = hidden, eps
        self.weight = nn.Parameter(torch.ones(hidden)) if weight else None
        self.bias = nn.Parameter(torch.zeros(hidden)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        return F.layer_norm(y, (self.hidden,), self.weight, self.bias, self.eps).to(x.dtype)


def norm(config: ModelConfig, size: int | None = None) -> nn.Module:
    """The norm of a configuration over ``hidden`` (or ``size``) dimensions."""
    size = config.hidden if size is None else size
    if config.norm == "rms":
        return RMSNorm(size, config.norm_eps)
    return LayerNorm(
        size, config.norm_eps, weight=config.norm != "layer_plain", bias=config.norm == "layer"
    )


class MLP(nn.Module):
    """down(activation(up(x))), or gated, down(activation(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        name, gated = MLPS[config.mlp]
        bias = config.bias in ("all", "mlp")
        self.activation = ACTIVATIONS[name]
        self.gate = nn.Linear(config.hidden, config.mlp_hidden, bias=bias) if gated else None
        self.up = nn.Linear(config.hidden, config.mlp_hidden, bias=bias)
        self.down = nn.Linear(config.mlp_hidden, config.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


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
    """Attention and feed-forward on the residual stream, x [batch, length, hidden] to the same.

    pre       x = x + attention(norm(x));  x = x + mlp(norm(x))          (Radford et al. 2019)
    post      x = norm(x + attention(x));  x = norm(x + mlp(x))          (Vaswani et al. 2017)
    sandwich  x = x + norm(attention(norm(x))), the same for mlp         (Ding et al. 2021)
    parallel  x = x + attention(norm(x)) + mlp(norm(x))                  (Wang and Komatsuzaki 2021)

    ``attention_norm`` and ``mlp_norm`` come before the
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
