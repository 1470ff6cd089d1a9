"""An optimiser over some of a model's weights, and the optimisers of a model as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from train.optim.whole import like, whole


@dataclass(frozen=True, kw_only=True)
class Part:
    """``state(weight)``: names and shapes of the tensors the optimiser keeps for a weight.
    ``split``: those of a weight's own shape are split over processes where the weight is.
    """

    optimizer: torch.optim.Optimizer
    state: Callable[[Tensor], dict[str, torch.Size]]
    split: bool = True


class Optimizers:
    """The optimisers of a model, one for each kind of weight, stepped together."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = [part for part in parts if _weights(part)]
        self._of = {id(weight): part for part in self.parts for weight in _weights(part)}

    def rate(self, lr: float) -> None:
        for part in self.parts:
            for group in part.optimizer.param_groups:
                group["lr"] = lr

    def zero_grad(self) -> None:
        for part in self.parts:
            part.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self.parts:
            part.optimizer.step()

    def expected(self, model: nn.Module) -> dict[str, torch.Size]:
        """Names and shapes of the whole state: "<state>.<parameter>"."""
        return {
            f"{key}.{name}": shape
            for name, parameter in model.named_parameters()
            for key, shape in self._of[id(parameter)].state(parameter).items()
        }

    def dump(self, model: nn.Module) -> dict[str, Tensor]:
        """The state in whole tensors. Of split weights every process must ask."""
        found: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            kept = self._state(parameter)
            for key, shape in self._of[id(parameter)].state(parameter).items():
                # Before its first step an optimiser has none, which is as good as zeros.
                value = kept.get(key)
                zeros = torch.zeros(shape, dtype=parameter.dtype if shape else torch.float32)
                found[f"{key}.{name}"] = zeros if value is None else whole(value)
        return found

    @torch.no_grad()
    def load(self, model: nn.Module, state: dict[str, Tensor]) -> None:
        """Take over a state of the ``expected`` names and shapes."""
        for name, parameter in model.named_parameters():
            kept, part = self._state(parameter), self._of[id(parameter)]
            kept.clear()
            for key, shape in part.state(parameter).items():
                value = state[f"{key}.{name}"].to(parameter.device, copy=True)
                own = part.split and shape == parameter.shape
                kept[key] = like(value, parameter) if own else value

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = self._of[id(parameter)].optimizer.state[parameter]
        return kept


def _weights(part: Part) -> list[Tensor]:
    return [weight for group in part.optimizer.param_groups for weight in group["params"]]
