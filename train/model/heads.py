"""The output head, and heads for two segments, for replaced tokens and for spans."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train.model import roles
from train.model.activations import FUNCTIONS
from train.model.config import ModelConfig
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.norms import norm
from train.model.positions import EMBEDDING
from train.model.roles import Role


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


class Head(nn.Module):
    """Features [..., hidden] to logits [..., vocab]; a tied one has the embedding's weight, and
    where that is narrower a matrix before it. That of a discriminator is ``replaced`` alone.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        own, size = config.head, config.embedded if config.head.tied else config.hidden
        tokens = not own.replaced
        weight = tokens and not own.tied
        self.weight = nn.Parameter(torch.zeros(config.vocab, size)) if weight else None
        self.bias = nn.Parameter(torch.zeros(config.vocab)) if own.bias and tokens else None
        std = EMBEDDING * (config.mup_base or size) ** -0.5
        matrix = Role(part="head", use="head", std=std, fan_in=size)
        roles.give(self, weight=matrix, bias=Role(part="head", use="vector"))
        self.transform = transform(config, size) if tokens else None
        self.pair = PairHead(config) if own.pair != "none" else None
        self.replaced = ReplacedHead(config) if own.replaced else None
        self.boundary = BoundaryHead(config, size) if own.boundary else None
