"""Positions: each encoding is an object that says what it does to embeddings, queries and keys,
and scores. To add one, write its settings in position_settings.py and its class here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train.attention import Alibi as AlibiBias
from train.attention import Mask, Relation, Relative, SharedMask
from train.model import roles
from train.model.config import ModelConfig
from train.model.norms import norm
from train.model.plugins import chosen
from train.model.position_settings import (
    Alibi,
    Buckets,
    Clipped,
    Disentangled,
    Distances,
    Learned,
    NoPositions,
    Rope,
    Sinusoidal,
)
from train.model.roles import Role
from train.model.rope import rope_frequencies, window_frequencies
from train.model.tables import alibi_slopes, sinusoids

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

    def bias(self) -> AlibiBias | Relative | None:
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


class DistanceVectors(Positions):
    """A learned vector for each distance i - j of query and key, or bucket of them, by rows from
    the farthest key ahead to the farthest behind (He et al. 2021, section 3.1, and their code).
    """

    content = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        own = config.position
        assert isinstance(own, Disentangled)
        self.span, self.buckets = own.span, own.buckets
        self.count = own.span if own.buckets is None else own.buckets  # to either side
        self.weight = nn.Parameter(torch.zeros(2 * self.count, config.hidden))
        std = EMBEDDING * config.hidden**-0.5
        roles.give(self, weight=Role(part="positions", use="lookup", std=std))
        self.norm = norm(config) if own.norm else nn.Identity()

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        index = self.bucket(mask.distance)
        far = self.count if mask.gaps else min(self.count, mask.keys)  # rows that may be met
        rows = self.weight[self.count - far : self.count + far]
        return Relation(rows=self.norm(rows), index=(index + far).clamp(0, 2 * far - 1))

    def bucket(self, distance: Tensor) -> Tensor:
        """Distances as they are, or those from half of the buckets on by their logarithm, which
        grows to the last bucket at ``span`` - 1.
        """
        if self.buckets is None:
            return distance
        middle = self.buckets // 2
        away = distance.abs().clamp(min=middle)
        last = torch.log(torch.tensor((self.span - 1) / middle, device=distance.device))
        ratio = torch.log(away / middle) / last
        large = (torch.ceil(ratio * (middle - 1)) + middle).long()
        return torch.where(distance.abs() <= middle, distance, large * distance.sign())


class ClippedDistances(Positions):
    """Distances up to the span, for which each layer has vectors (Shaw et al. 2018, 3.2)."""

    content = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.position, Clipped)
        self.span, self.least = config.position.span, 0 if config.causal else -config.position.span

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        return Relation(index=mask.distance.clamp(self.least, self.span) - self.least)


class DistanceSinusoids(Positions):
    """Sines and cosines of each distance (Dai et al. 2019, section 3.3), from the farthest key
    ahead to the farthest behind; beyond the context they are those of its last.
    """

    content = True
    sinusoids: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.causal = config.causal
        table = sinusoids(config.context, config.hidden)
        if not config.causal:  # the sine of a negative distance is minus the other's
            ahead = table[1:].flip(0)
            ahead[:, 0::2] *= -1
            table = torch.cat((ahead, table))
        self.register_buffer("sinusoids", table, persistent=False)

    def relation(self, mask: Mask | SharedMask) -> Relation:
        assert isinstance(mask, Mask)
        count = len(self.sinusoids) if self.causal else (len(self.sinusoids) + 1) // 2
        far = count if mask.gaps else min(count, mask.keys)
        first = 0 if self.causal else far - 1  # of the rows that may be met, distance 0
        start = 0 if self.causal else count - far
        rows = self.sinusoids[start : start + first + far]
        return Relation(rows=rows, index=(mask.distance + first).clamp(0, first + far - 1))


ENCODINGS: dict[type, type[Positions]] = {
    Rope: Rotary,
    Learned: LearnedTable,
    Sinusoidal: Sinusoids,
    Alibi: Slopes,
    Buckets: RelativeBuckets,
    Disentangled: DistanceVectors,
    Clipped: ClippedDistances,
    Distances: DistanceSinusoids,
    NoPositions: Positions,
}


def positions(config: ModelConfig) -> Positions:
    """The encoding of a configuration."""
    encoding: Positions = chosen(config.position, ENCODINGS)(config)
    return encoding


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
