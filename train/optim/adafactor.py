"""Adafactor (Shazeer and Stern 2018, algorithms 4 and 5) without momentum.

Second moments of a matrix are kept as means of its rows and of its columns: r + c numbers for
r x c. The update is clipped to a root mean square of 1 and scaled by the weight's own; the rate is
the schedule's, so ``lr`` is relative: 0.01 is the paper's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from train.config import TrainConfig
from train.optim.groups import Groups
from train.optim.part import Part, like, whole

EPS1, EPS2 = 1e-30, 1e-3  # section 9: of squared gradients, of a weight's scale
CLIP, DECAY = 1.0, -0.8  # d of algorithm 4; beta2 is 1 - step ** DECAY


class Adafactor(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._one(weight, group["lr"], group["weight_decay"])

    def _one(self, weight: Tensor, rate: float, weight_decay: float) -> None:
        assert weight.grad is not None
        gradient, values = whole(weight.grad), whole(weight)
        state = self.state[weight]
        if not state:
            for name, shape in _state(weight).items():
                state[name] = gradient.new_zeros(shape)
        state["step"] += 1
        forget = state["step"] ** DECAY  # 1 at the first step
        square = gradient.square() + EPS1
        if gradient.dim() < 2:
            update = gradient * state["square"].lerp_(square, forget).rsqrt()
        else:
            rows = state["rows"].lerp_(square.mean(-1), forget)
            columns = state["columns"].lerp_(square.mean(-2), forget)
            row_factor = (rows / rows.mean(-1, keepdim=True)).rsqrt()
            update = gradient * row_factor[..., None] * columns.rsqrt()[..., None, :]
        update = update / (_rms(update) / CLIP).clamp(min=1.0)
        update = update * (_rms(values).clamp(min=EPS2) * rate)
        weight.mul_(1 - rate * weight_decay)
        weight.sub_(like(update, weight))


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def adafactor(groups: Groups, config: TrainConfig) -> list[Part]:
    optimizer = Adafactor(
        [
            {"params": groups.decayed, "weight_decay": config.weight_decay},
            {"params": groups.exempt, "weight_decay": 0.0},
        ],
        {"lr": config.lr},
    )
    return [Part(optimizer=optimizer, state=_state, split=False)]


def _state(parameter: Tensor) -> dict[str, torch.Size]:
    shape = parameter.shape
    if len(shape) < 2:
        return {"step": torch.Size(), "square": shape}
    columns = torch.Size([*shape[:-2], shape[-1]])
    return {"step": torch.Size(), "rows": shape[:-1], "columns": columns}
