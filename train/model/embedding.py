"""The embedding: a vector for each token, and what leads from it to the stack."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train.model import roles
from train.model.config import ModelConfig
from train.model.norms import norm
from train.model.positions import EMBEDDING
from train.model.roles import Role


class Embedding(nn.Embedding):
    """A vector for each token, and for the segment that it is in."""

    def __init__(self, config: ModelConfig) -> None:
        own, size = config.embedding, config.embedded
        super().__init__(config.vocab, size)
        std = EMBEDDING * (config.mup_base or size) ** -0.5
        roles.give(self, weight=(role := Role(part="embedding", use="lookup", std=std)))
        self.segments = nn.Embedding(own.segments, size) if own.segments else None
        if self.segments is not None:
            roles.give(self.segments, weight=role)
        self.norm = norm(config, config.positioned) if own.norm else nn.Identity()
        self.out = widened(config)

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        x = super().forward(tokens)
        if self.segments is None:
            return x
        if segments is None:
            return x + self.segments(torch.zeros_like(tokens))
        return x + self.segments(segments.clamp(max=self.segments.num_embeddings - 1))


def widened(config: ModelConfig) -> nn.Module:
    """What leads from the embedding to the stack: a matrix where that is wider."""
    own = config.embedding
    if own.size is None:
        return nn.Identity()
    return roles.linear(own.size, config.hidden, part="embedding", bias=own.bias)
