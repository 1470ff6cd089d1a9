"""Activations by the names that ``feed_forward_settings.ACTIVATIONS`` gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor


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
