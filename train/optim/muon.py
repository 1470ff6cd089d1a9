"""Muon (Jordan et al. 2024): the momentum of a hidden matrix, made orthogonal.

The update keeps the directions of the momentum and makes their sizes equal, by five Newton-Schulz
steps that need matrix products only. Embeddings, the head and vectors are AdamW's. An update of
r x c is scaled by 0.2 sqrt(max(r, c)), the size of AdamW's, so both go with the same rate and decay
(Liu et al. 2025, "Muon is scalable for LLM training", section 2.2).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from train.config import TrainConfig
from train.optim import adamw
from train.optim.groups import Groups
from train.optim.part import Part, like, whole

STEPS = 5
# Jordan et al. 2024: the steepest quintic at 0 that keeps (0, 1] within about 0.7 to 1.2.
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [n, rows, columns], each U S V^T, as about U V^T. In bfloat16 on a GPU, where the
    iteration is known to bear it (Jordan et al. 2024), else in float32 or wider.
    """
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-2, -1) if tall else x
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # singular values below 1
    for _ in range(STEPS):
        square = x @ x.transpose(-2, -1)
        x = A * x + (B * square + C * square @ square) @ x
    return (x.transpose(-2, -1) if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault(weight.shape, []).append(weight)
            for weights in shapes.values():  # those of one shape go through the iteration together
                updates = orthogonal(torch.stack([self._nesterov(w, group) for w in weights]))
                scale = 0.2 * max(updates.shape[-2:]) ** 0.5
                for weight, update in zip(weights, updates, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(like(update, weight), alpha=-group["lr"] * scale)

    def _nesterov(self, weight: Tensor, group: dict[str, Any]) -> Tensor:
        state, mu = self.state[weight], group["momentum"]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        assert weight.grad is not None
        momentum = state["momentum"].lerp_(weight.grad, 1 - mu)
        return whole(weight.grad.lerp(momentum, mu))


def muon(groups: Groups, config: TrainConfig) -> list[Part]:
    optimizer = Muon(
        [{"params": groups.hidden}],
        {"lr": config.lr, "momentum": config.momentum, "weight_decay": config.weight_decay},
    )
    rest = adamw.of(groups.head, groups.exempt, config)
    return [Part(optimizer=optimizer, state=_state), rest]


def _state(parameter: Tensor) -> dict[str, torch.Size]:
    return {"momentum": parameter.shape}
