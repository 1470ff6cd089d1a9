"""Residual connections: the stream and what a part adds to it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train.model.config import ModelConfig
from train.model.residual_settings import ReZero
from train.model.roles import Role, give


class Join:
    """x + change, or with DeepNorm alpha * x + change (Wang et al. 2022, section 3)."""

    def __init__(self, config: ModelConfig) -> None:
        self.alpha = None if config.deep is None else config.deep[0]

    def __call__(self, x: Tensor, change: Tensor) -> Tensor:
        return x + change if self.alpha is None else self.alpha * x + change


class ReZeroJoin(nn.Module):
    """x + weight * change with a learned weight, which begins at 0 so that a block begins as the
    identity (Bachlechner et al. 2020, arXiv 2003.04887, equation 4).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        give(self, weight=Role(part="other", use="vector"))

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        return x + self.weight.to(x.dtype) * change


def join(config: ModelConfig) -> Join | ReZeroJoin:
    """How parts of a block of this configuration join the stream."""
    return (ReZeroJoin if isinstance(config.residual, ReZero) else Join)(config)
