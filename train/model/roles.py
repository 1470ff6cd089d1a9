"""What each weight is for: the one place that initialisation, optimisers and cost accounts read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from train.split import copy_into


@dataclass(frozen=True, kw_only=True)
class Role:
    """``part``: what its cost is counted under. ``use``: ``matrix``, which multiplies every token;
    ``lookup``, of which a token reads a row; ``head``, the output head; ``vector``, a scale or a
    bias. ``std``: the deviation of its first values, drawn from a normal distribution, or None
    where all begin as ``start``. ``fan_in``: the numbers that each of its outputs sums over.
    ``rate``: its learning rate over the run's. ``split``: how processes share it that compute a
    block together: each has some of the ``outputs`` or of the ``inputs``, whose products are added
    up; of ``heads`` each has all and uses it for its own heads; else it is in all the same.
    ``met``: the share of its numbers that each token is multiplied by, of experts less than 1.
    """

    part: str
    use: str
    std: float | None = None
    start: float = 0.0
    fan_in: int = 0
    rate: float = 1.0
    split: str = ""
    met: float = 1.0


def give(module: nn.Module, **roles: Role) -> None:
    """Say what the module's own parameters are for, by their names."""
    module.roles = roles  # type: ignore[assignment]


def linear(
    inputs: int,
    outputs: int,
    *,
    part: str,
    bias: bool,
    shrink: float = 1.0,
    rate: float = 1.0,
    split: str = "",
    met: float = 1.0,
) -> nn.Linear:
    """A linear layer with its roles; its weights' deviation is shrink / sqrt(inputs)."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    std = shrink * inputs**-0.5
    weight = Role(part=part, use="matrix", std=std, fan_in=inputs, rate=rate, split=split, met=met)
    addend = Role(part=part, use="vector", split=split if split == "outputs" else "")
    give(layer, weight=weight, bias=addend)
    return layer


def roles(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Role]]:
    """Name, parameter and role of each trained weight, in the order of ``named_parameters``. A
    parameter whose module says nothing of it is told by its shape, as PyTorch's own layers are, and
    its part by where it stands.
    """
    by_name: dict[str, Role] = {}
    for prefix, module in model.named_modules():
        stated = getattr(module, "roles", None)
        for name, parameter in module.named_parameters(recurse=False):
            whole = f"{prefix}.{name}" if prefix else name
            by_name[whole] = stated[name] if stated else _by_shape(module, whole, parameter)
    for name, parameter in model.named_parameters():
        yield name, parameter, by_name[name]


def _by_shape(module: nn.Module, name: str, parameter: nn.Parameter) -> Role:
    *above, last = name.split(".")
    part = next((part for part in ("attention", "feed_forward", "positions") if part in above), "")
    part = part or "other"
    if parameter.dim() < 2:  # a scale, as of a norm, or what is added
        scale = last == "weight" and not isinstance(module, nn.Linear)
        return Role(part=part, use="vector", start=float(scale))
    fan_in = parameter.shape[-1]
    use = "matrix" if isinstance(module, nn.Linear) else "lookup"
    return Role(part=part, use=use, std=fan_in**-0.5, fan_in=fan_in)


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """First values by role: normal ones of deviation 1 / sqrt(inputs), those that write to the
    residual stream divided by sqrt(2 x layers) (Radford et al. 2019), embeddings and head
    0.4 / sqrt(hidden). GPT-2's fixed 0.02 suits its width, and costs a model of 192 half of its
    first minute. Norms begin as the identity, biases as 0. Depends on the seed alone: each process
    draws all values in turn, and of split parameters keeps its part.
    """
    generator = torch.Generator().manual_seed(seed)
    for _, parameter, role in roles(model):
        if role.std is None:
            parameter.fill_(role.start)
        else:
            drawn = torch.empty(parameter.shape).normal_(0.0, role.std, generator=generator)
            copy_into(parameter, drawn)
