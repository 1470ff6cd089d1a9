"""AdamW (Loshchilov and Hutter 2019), PyTorch's, fused."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train.config import TrainConfig
from train.optim.groups import Groups
from train.optim.part import Part


def adamw(groups: Groups, config: TrainConfig) -> list[Part]:
    return [of(groups.decayed, groups.exempt, config)]


def of(decayed: list[nn.Parameter], exempt: list[nn.Parameter], config: TrainConfig) -> Part:
    """AdamW over two lists of weights, the second without decay."""
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": exempt, "weight_decay": 0.0},
        ],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
    return Part(optimizer=optimizer, state=_state)


def _state(parameter: Tensor) -> dict[str, torch.Size]:
    shape = parameter.shape
    return {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}
