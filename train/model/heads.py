"""The output head. Others, and encoders, join from the lab by ``HEADS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from llmcurate.base.index import modules_of
from train.model import roles
from train.model.config import Before, ModelConfig, Task, TaskKind
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.layers import FUNCTIONS, norm
from train.model.positions import EMBEDDING
from train.model.roles import Role

# What stands beside the head or in its place, by the name of its setting: ``pair``, ``replaced``,
# ``boundary``, ``task``, ``mtp``, ``generator``; and ``encoder``. Modules of the lab add to it.
HEADS: dict[str, Callable[..., Any]] = {}


def other(name: str) -> Callable[..., Any]:
    """What builds such a head."""
    if name not in HEADS:
        modules_of("train.lab.model")
    return HEADS[name]


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
        self.pair = other("pair")(config) if own.pair != "none" else None
        self.replaced = other("replaced")(config) if own.replaced else None
        self.boundary = other("boundary")(config, size) if own.boundary else None


def with_task(config: ModelConfig, kind: TaskKind, labels: tuple[str, ...]) -> ModelConfig:
    """The model with a head for a task in place of its own. What stands before its matrix is as in
    the family's own classes: ModernBERT's transform; BERT's pool, of a text; of others nothing.
    """
    config = config.trunk
    before: Before = "nothing"
    if config.head.transform and config.norm.place == "pre":
        before = "transform"
    elif config.head.transform and kind == "classify":
        before = "pool"
    task = Task(kind=kind, labels=labels, before=before)
    head = replace(config.head, pair="none", replaced=False, boundary=False, task=task)
    return replace(config, head=head)


def kept(name: str, task: Task) -> str:
    """What a weight of a model is called once it has a head for a task, "" where it has no place
    there: of the heads the transform stays, and as the pool that of pairs of segments.
    """
    pool = "head.pair.pool."
    if task.before == "pool" and name.startswith(pool):
        return name.replace(pool, "head.transform.linear.")
    stays = task.before == "transform" and name.startswith("head.transform.")
    return name if stays or not name.startswith(("head.", "mtp.", "generator.")) else ""
