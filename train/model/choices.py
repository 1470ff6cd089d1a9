"""The class of each kind of position and of attention."""

from __future__ import annotations

from torch import nn

from train.model.attention import SelfAttention
from train.model.attention_settings import Grouped, Latent
from train.model.config import ModelConfig
from train.model.disentangled import DisentangledAttention, DistanceVectors
from train.model.latent import LatentAttention
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
from train.model.positions import (
    LearnedTable,
    Positions,
    RelativeBuckets,
    Rotary,
    Sinusoids,
    Slopes,
)
from train.model.relative import (
    ClippedAttention,
    ClippedDistances,
    DistanceAttention,
    DistanceSinusoids,
)

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


ATTENTIONS: dict[type, type[nn.Module]] = {Grouped: SelfAttention, Latent: LatentAttention}
# Grouped attention where positions are more than what is done to queries, keys or scores alone.
BY_POSITION: dict[type, type[nn.Module]] = {
    Disentangled: DisentangledAttention,
    Clipped: ClippedAttention,
    Distances: DistanceAttention,
}


def attention(config: ModelConfig, backend: str) -> nn.Module:
    """The attention of a configuration."""
    make = BY_POSITION.get(type(config.position)) or chosen(config.attention, ATTENTIONS)
    part: nn.Module = make(config, backend)
    return part
