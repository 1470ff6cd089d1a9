"""AdamW and its schedule."""

from __future__ import annotations

import math

import torch

from train.config import TrainConfig
from train.model.decoder import Decoder


def learning_rate(plan: TrainConfig, step: int) -> float:
    """The rate of step 0, 1, ...: linear warmup, then a cosine to ``lr * lr_floor`` at the end."""
    if step < plan.warmup:
        return plan.lr * (step + 1) / plan.warmup
    done = (step - plan.warmup + 1) / max(1, plan.steps - plan.warmup)
    floor = plan.lr * plan.lr_floor
    return floor + (plan.lr - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def adamw(model: Decoder, plan: TrainConfig) -> torch.optim.AdamW:
    """Decoupled weight decay (Loshchilov and Hutter 2019) on matrices, none on norms."""
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": plan.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=plan.lr,
        betas=(plan.beta1, plan.beta2),
        eps=plan.eps,
        fused=next(model.parameters()).is_cuda,
    )
