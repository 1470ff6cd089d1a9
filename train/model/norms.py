"""Norms, computed in float32 or wider."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.config import Stack
from train.model.roles import Role, give

SCALE = Role(part="norms", use="vector", start=1.0)


class RMSNorm(nn.Module):
    """x / rms(x) * weight, computed in float32 or wider (Zhang and Sennrich 2019)."""

    def __init__(self, hidden: int, eps: float, *, split: str = "") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        give(self, weight=replace(SCALE, split=split))
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
        give(self, weight=SCALE, bias=Role(part="norms", use="vector"))

    def forward(self, x: Tensor) -> Tensor:
        y = x if x.dtype == torch.float64 else x.float()
        weight, bias = (None if v is None else v.to(y.dtype) for v in (self.weight, self.bias))
        return F.layer_norm(y, (self.hidden,), weight, bias, self.eps).to(x.dtype)


def norm(config: Stack, size: int | None = None) -> nn.Module:
    """The norm of a stack, over its hidden dimensions or ``size`` others."""
    own, size = config.norm, size or config.hidden
    if own.kind == "rms":
        return RMSNorm(size, own.eps)
    return LayerNorm(size, own.eps, weight=own.kind != "layer_plain", bias=own.kind == "layer")


def last_norm(config: Stack) -> nn.Module | None:
    """The norm behind the last block; None where blocks end with one, or have none."""
    return None if config.norm.place in ("post", "none") else norm(config)
