"""The dense feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.model.config import ModelConfig
from train.model.feed_forward_settings import ACTIVATIONS, Experts
from train.model.roles import linear

if TYPE_CHECKING:
    from train.model.block import View


def _relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "relu2": _relu2,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
}


# What a part says of a batch beside its output, by name.
Notes = dict[str, Tensor]


def note(notes: dict[str, list[Tensor]] | None, part_notes: Notes) -> None:
    """Add what a part says to those of the parts before it, where they are wanted."""
    if notes is None:
        return
    for name, value in part_notes.items():
        notes.setdefault(name, []).append(value)


class FeedForward(nn.Module):
    """down(activation(up(x))), or gated, down(activation(gate(x)) * up(x)) (Shazeer 2020).
    ``width``: where it is another than the configuration's.
    """

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        own, hidden = config.feed_forward, config.hidden
        if width is None:
            width = (isinstance(own, Experts) and own.dense_width) or own.width
        name, gated = ACTIVATIONS[own.activation]
        self.activation = FUNCTIONS[name]
        make = partial(linear, part="feed_forward", bias=own.bias, rate=1 / config.wider)
        into = partial(make, shrink=config.gain, split="outputs")
        self.gate = into(hidden, width) if gated else None
        self.up = into(hidden, width)
        self.down = make(width, hidden, shrink=config.shrink, split="inputs")

    def forward(self, x: Tensor, view: View | None = None) -> tuple[Tensor, Notes]:
        """x [..., hidden] to the same; it has nothing to say."""
        if self.gate is None:
            return self.down(self.activation(self.up(x))), {}
        return self.down(self.activation(self.gate(x)) * self.up(x)), {}
