"""What stands between embedding, stack and head where they differ, and heads for two
segments, for replaced tokens and for spans.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train.model import roles
from train.model.activations import FUNCTIONS
from train.model.config import ModelConfig
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.norms import norm
from train.model.roles import Role


def widened(config: ModelConfig) -> nn.Module:
    """What leads from the embedding to the stack: a matrix where that is wider."""
    own = config.embedding
    if own.size is None:
        return nn.Identity()
    return roles.linear(own.size, config.hidden, part="embedding", bias=own.bias)


def transform(config: ModelConfig, size: int) -> nn.Module | None:
    """What stands before the head's matrix, which reads ``size`` dimensions: ``Transform``, a
    matrix where a tied head is narrower than the stack, or nothing.
    """
    if config.head.transform:
        return Transform(config, size)
    if size == config.hidden:
        return None
    return roles.linear(config.hidden, size, part="head", bias=False)


class Transform(nn.Module):
    """What BERT's head begins with: norm(activation(linear(x)))."""

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__()
        bias = config.feed_forward.bias
        self.linear = roles.linear(config.hidden, size, part="head", bias=bias)
        self.activation = FUNCTIONS[ACTIVATIONS[config.feed_forward.activation][0]]
        self.norm = norm(config, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.linear(x)))


class PairHead(nn.Module):
    """Features of the first token to two logits: whether two segments belong together, or not."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pool = roles.linear(config.hidden, config.hidden, part="head", bias=True)
        self.out = roles.linear(config.hidden, 2, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.pool(x)))


PLACES = 20  # in a span (SpanBERT's code)


class BoundaryHead(nn.Module):
    """Features of the tokens left and right of a span, [tokens, hidden] each, and the places of
    tokens in it, int64 [tokens], to what the head's matrix reads of these tokens (Joshi et al.
    2020, section 3.2).
    """

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__()
        hidden = config.hidden
        self.places = nn.Embedding(PLACES, hidden)
        role = Role(part="head", use="lookup", std=hidden**-0.5, fan_in=hidden)
        roles.give(self.places, weight=role)
        self.first = roles.linear(3 * hidden, hidden, part="head", bias=True)
        self.second = roles.linear(hidden, size, part="head", bias=True)
        self.first_norm, self.second_norm = norm(config, hidden), norm(config, size)

    def forward(self, left: Tensor, right: Tensor, places: Tensor) -> Tensor:
        x = torch.cat([left, right, self.places(places).to(left.dtype)], -1)
        x = self.first_norm(F.gelu(self.first(x)))
        return self.second_norm(F.gelu(self.second(x)))


class ReplacedHead(nn.Module):
    """Features [..., hidden] to a logit of whether the token was replaced, [...] in float32 (Clark
    et al. 2020, and a layer before it, as in their code).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = roles.linear(config.hidden, config.hidden, part="head", bias=True)
        self.activation = FUNCTIONS[ACTIVATIONS[config.feed_forward.activation][0]]
        self.out = roles.linear(config.hidden, 1, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.out(self.activation(self.linear(x)))[..., 0]
        return logits if logits.dtype == torch.float64 else logits.float()
