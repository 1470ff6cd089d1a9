"""Positions: each encoding is an object that says what it does to embeddings, queries and keys,
and scores. Those by vectors of distances stand beside the attention that reads them. To add one,
write its settings in position_settings.py, its class here, and put both in choices.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from train.attention import Alibi as AlibiBias
from train.attention import Bias, Mask, Relation, Relative, SharedMask
from train.model import roles
from train.model.config import ModelConfig
from train.model.position_settings import Buckets, Learned
from train.model.roles import Role
from train.model.rope import rope_frequencies, rotations, window_frequencies


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


# So small that the first loss is ln(vocab) within a few hundredths, for a tied head too.
EMBEDDING = 0.4


class Positions(nn.Module):
    """No positions, and what an encoding may do. ``heads``: those that a bias is for."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = slice(None)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [batch, length, hidden] with their positions, [batch or 1, length]."""
        return x

    def rotation(self, positions: Tensor, windowed: bool = False) -> Tensor | None:
        """What ``rotate`` multiplies queries and keys by, or None. ``windowed``: where a window
        holds.
        """
        return None

    def bias(self) -> Bias | None:
        """What is added to the scores, or None."""
        return None

    content = False  # whether each layer adds scores that follow from ``relation`` and its tokens

    def relation(self, mask: Mask | SharedMask) -> Relation | None:
        """The vectors of the distances between queries and keys, or None."""
        return None


class Rotary(Positions):
    """Queries and keys turned by an angle for each pair of dimensions (Su et al. 2021)."""

    frequencies: Tensor
    of_windows: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        frequencies, self.factor = rope_frequencies(config)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.register_buffer("of_windows", window_frequencies(config), persistent=False)

    def tune(self, config: ModelConfig) -> None:
        """Turn as another configuration does, from now on."""
        frequencies, self.factor = rope_frequencies(config)
        self.frequencies.copy_(frequencies)

    def rotation(self, positions: Tensor, windowed: bool = False) -> Tensor:
        if windowed and self.of_windows is not None:
            return rotations(self.of_windows, 1.0, positions)
        return rotations(self.frequencies, self.factor, positions)


class LearnedTable(Positions):
    """A vector for each position, added to the embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Learned)
        self.offset = config.position.offset
        self.weight = nn.Parameter(torch.zeros(config.context + self.offset, config.positioned))
        std = EMBEDDING * (config.mup_base or config.positioned) ** -0.5
        roles.give(self, weight=Role(part="positions", use="lookup", std=std))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + nn.functional.embedding(positions + self.offset, self.weight)


class Sinusoids(Positions):
    """Sines and cosines, added to the embedding times sqrt(hidden) (Vaswani et al. 2017)."""

    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        table = sinusoids(config.context, config.positioned)
        self.register_buffer("sinusoids", table, persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x * x.shape[-1] ** 0.5 + self.sinusoids[positions].to(x.dtype)


class Slopes(Positions):
    """Scores less the distance times the head's slope (Press et al. 2022)."""

    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        slopes = alibi_slopes(config.attention.heads)
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self) -> AlibiBias:
        return AlibiBias(slopes=self.slopes[self.heads])


class RelativeBuckets(Positions):
    """Scores and a learned number for the distance's bucket and the head (Raffel et al. 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Buckets)
        self.distance, self.both_ways = config.position.distance, not config.causal
        self.weight = nn.Parameter(torch.zeros(config.position.buckets, config.attention.heads))
        roles.give(self, weight=Role(part="positions", use="lookup", std=0.02, split="heads"))

    def bias(self) -> Relative:
        weight = self.weight[:, self.heads]
        return Relative(weight=weight, distance=self.distance, both_ways=self.both_ways)
