"""The parts without attention: norms and feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.config import MLPS, ModelConfig


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
