"""An optimiser over some of a model's weights, and the optimisers of a model as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Weights that are split over several processes, whole for a moment.
#
# Optimisers that look at a matrix as a whole (its rows, its singular values) gather its gradient,
# and each process computes the same update and keeps its part.


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all parts of a split one, on every process."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def like(tensor: Tensor, parameter: Any) -> Tensor:
    """A whole ``tensor``, equal on every process, split as ``parameter`` is."""
    if not hasattr(parameter, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    everywhere = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    split: Tensor = everywhere.redistribute(mesh, parameter.placements)
    return split


@torch.no_grad()
def fill(parameter: Tensor, tensor: Tensor) -> None:
    """Copy a whole ``tensor`` from the CPU into a parameter, split or not."""
    parameter.copy_(like(tensor.to(parameter.device, parameter.dtype), parameter))


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
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            kept = self._state(parameter)
            for key, shape in self._of[id(parameter)].state(parameter).items():
                # Before its first step an optimiser has none, which is as good as zeros.
                value = kept.get(key)
                zeros = torch.zeros(shape, dtype=parameter.dtype if shape else torch.float32)
                tensors[f"{key}.{name}"] = zeros if value is None else whole(value)
        return tensors

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
