"""Encodings of positions: rotary frequencies and their scalings, sinusoids, ALiBi's slopes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from train.model.config import ModelConfig, RopeScaling


def rope_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """The angle a step turns each pair by: float32 [rotated / 2]; and the factor on cos and sin.

    Su et al. 2021, with the scaling of ``config.rope_scaling``.
    """
    size, theta, scaling = config.rotated, config.rope_theta, config.rope_scaling
    if scaling is not None and scaling.kind == "ntk":
        theta *= scaling.factor ** (size / (size - 2))
    exponents = torch.arange(0, size, 2, dtype=torch.int64).float() / size
    frequencies = 1.0 / theta**exponents
    if scaling is None or scaling.kind == "ntk":
        return frequencies, 1.0
    if scaling.kind == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(frequencies, scaling), 1.0
    if scaling.kind == "yarn":
        factor = 0.1 * math.log(scaling.factor) + 1.0
        return _yarn(frequencies, scaling, size, theta), factor
    long = config.context > scaling.original_context
    divisors = torch.tensor(scaling.long if long else scaling.short)
    stretch = max(1.0, config.context / scaling.original_context)
    factor = math.sqrt(1 + math.log(stretch) / math.log(scaling.original_context))
    return frequencies / divisors, factor


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Long waves are slowed down by the factor, short ones kept, those between interpolated."""
    wave = 2 * math.pi / frequencies
    turns = scaling.original_context / wave
    share = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return (1 - share) * frequencies / scaling.factor + share * frequencies


def _yarn(frequencies: Tensor, scaling: RopeScaling, size: int, theta: float) -> Tensor:
    """As ``llama3``, with a ramp over the index of the pair, not over its turns."""

    def pair(turns: float) -> float:
        """The index of the pair that turns so often in the original context."""
        wave = scaling.original_context / (turns * 2 * math.pi)
        return size * math.log(wave) / (2 * math.log(theta))

    first = max(math.floor(pair(scaling.beta_fast)), 0)
    last = min(math.ceil(pair(scaling.beta_slow)), size - 1)
    index = torch.arange(size // 2, dtype=torch.float32)
    slowed = ((index - first) / max(last - first, 0.001)).clamp(0, 1)
    return slowed * frequencies / scaling.factor + (1 - slowed) * frequencies


def rotations(frequencies: Tensor, factor: float, positions: Tensor) -> Tensor:
    """What ``rotate`` multiplies by, for positions [batch or 1, length]: float32
    [2, batch or 1, 1, length, rotated], cosines, and sines that are negative in the first half.
    """
    angle = positions[:, None, :, None].float() * frequencies
    cos, sin = angle.cos() * factor, angle.sin() * factor
    return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate dimension i with i + rotated / 2, the pairing of Hugging Face's LLaMA weights; what
    is past the rotated dimensions stays. ``x``: [batch, heads, length, head_dim].
    """
    cos, sin = rotation.to(x.dtype)
    size = cos.shape[-1]
    turned = x if size == x.shape[-1] else x[..., :size]
    first, second = turned.chunk(2, dim=-1)
    turned = torch.addcmul(turned * cos, torch.cat((second, first), dim=-1), sin)
    return turned if size == x.shape[-1] else torch.cat((turned, x[..., size:]), dim=-1)


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
