"""The role of each weight, by which it is initialised, optimised, and counted in costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from train.split import copy_into


@dataclass(frozen=True, kw_only=True)
class Role:
    """The role of a parameter.

    ``part``: the part of the model that its cost is counted under.
    ``use``: ``matrix`` (multiplies every token), ``lookup`` (a token reads one row), ``head`` (the
        output head), or ``vector`` (a scale or bias).
    ``std``: standard deviation of the initial values; None: all values are ``start``.
    ``fan_in``: the number of inputs that each output sums over.
    ``rate``: the parameter's learning rate, relative to the run's.
    ``split``: how tensor parallelism divides the parameter. ``outputs`` or ``inputs``: each process
        has a part of these; with ``inputs`` the processes' results are added up. ``heads``: each
        process has the whole, and uses it for its own heads. "": each process has the whole.
    ``active``: share of the parameter's numbers that one token is multiplied by; below 1 for
        experts.
    """

    part: str
    use: str
    std: float | None = None
    start: float = 0.0
    fan_in: int = 0
    rate: float = 1.0
    split: str = ""
    active: float = 1.0


def set_roles(module: nn.Module, **roles: Role) -> None:
    """Set the roles of parameters that belong directly to ``module``, by their names."""
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
    active: float = 1.0,
) -> nn.Linear:
    """Build a linear layer whose weight and bias have a ``Role``: how they are initialised, trained
    and counted. ``rate``, ``split`` and ``active`` are fields of the role. The initial weight has
    the standard deviation ``shrink`` / sqrt(inputs)."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    std = shrink * inputs**-0.5
    weight = Role(
        part=part, use="matrix", std=std, fan_in=inputs, rate=rate, split=split, active=active
    )
    addend = Role(part=part, use="vector", split=split if split == "outputs" else "")
    set_roles(layer, weight=weight, bias=addend)
    return layer


def roles(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Role]]:
    """Yield name, parameter and role of each trained weight, in the order of ``named_parameters``.
    In modules without ``set_roles``, such as PyTorch's own layers, shape and name give the role.
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
    if parameter.dim() < 2:  # a scale, as of a norm, or a bias
        scale = last == "weight" and not isinstance(module, nn.Linear)
        return Role(part=part, use="vector", start=float(scale))
    fan_in = parameter.shape[-1]
    use = "matrix" if isinstance(module, nn.Linear) else "lookup"
    return Role(part=part, use=use, std=fan_in**-0.5, fan_in=fan_in)


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Set the initial values of all parameters by their roles, from the seed alone.

    Matrices are normal with deviation 1 / sqrt(inputs), divided by sqrt(2 x layers) if they write
    to the residual stream (Radford et al. 2019). Embeddings and head have 0.4 / sqrt(hidden).
    GPT-2's fixed 0.02 suits the width of GPT-2, but delays the training of a model with 192
    dimensions by half a minute. Norms start as the identity, biases as 0. Each process draws all
    values in the same order, and keeps its part of split parameters."""
    generator = torch.Generator().manual_seed(seed)
    for _, parameter, role in roles(model):
        if role.std is None:
            parameter.fill_(role.start)
        else:
            drawn = torch.empty(parameter.shape).normal_(0.0, role.std, generator=generator)
            copy_into(parameter, drawn)
