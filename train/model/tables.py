"""Tables of fixed positions: sinusoids, and ALiBi's slopes."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoids(length: int, hidden: int) -> Tensor:
    """float32 [length, hidden]: sines in even dimensions, cosines in odd (Vaswani et al. 2017)."""
    even = torch.arange(0, hidden, 2, dtype=torch.float32)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * 10_000 ** (-even / hidden)
    table = torch.zeros(length, hidden)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : hidden // 2]
    return table


def alibi_slopes(heads: int) -> Tensor:
    """float32 [heads]: 2 ** (-8 i / heads); for heads that are no power of two, those of the power
    below and every second one of the power above (Press et al. 2022).
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes + extra)
