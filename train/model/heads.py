"""The output head, and ``HEADS``, a table of functions that build optional parts of a model.
Modules of train/lab/model add their parts: other heads, and the encoder of an encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llmcurate.base.index import modules_of
from train.model import roles
from train.model.config import Answers, Before, ModelConfig, Task, TaskKind
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.layers import FUNCTIONS, norm
from train.model.positions import EMBEDDING
from train.model.roles import Role

# Builders by setting: ``pair``, ``replaced``, ``boundary``, ``task``, ``mtp``, ``generator``, and
# ``encoder``. Modules of the lab add to it.
HEADS: dict[str, Callable[..., Any]] = {}


def builder_of(name: str) -> Callable[..., Any]:
    """Return the class or function in ``HEADS`` that builds the part of this name."""
    if name not in HEADS:
        modules_of("train.lab.model")
    return HEADS[name]


def transform(config: ModelConfig, size: int) -> nn.Module | None:
    """Build the layer before the head's matrix, with ``size`` outputs: a ``Transform``, or a matrix
    if a tied head is narrower than the stack. Return None if neither is needed."""
    if config.head.transform:
        return Transform(config, size)
    if size == config.hidden:
        return None
    return roles.linear(config.hidden, size, part="head", bias=False)


class Transform(nn.Module):
    """The layer before the matrix in BERT's head: norm(activation(linear(x)))."""

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__()
        bias = config.feed_forward.bias
        self.linear = roles.linear(config.hidden, size, part="head", bias=bias)
        self.activation = FUNCTIONS[ACTIVATIONS[config.feed_forward.activation][0]]
        self.norm = norm(config, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.linear(x)))


class HeadWeights(NamedTuple):
    """The weights of an output head: a matrix [outputs, hidden] and a bias [outputs] or None. The
    outputs are the vocabulary, or the labels of a task. ``softcap``: the cap on logits, or None."""

    weight: Tensor
    bias: Tensor | None
    softcap: float | None = None

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits [..., vocab], in float32 or wider, for the head's input x."""
        out = F.linear(x, self.weight, self.bias)
        out = out if out.dtype == torch.float64 else out.float()
        return out if self.softcap is None else self.softcap * (out / self.softcap).tanh()


class Head(nn.Module):
    """The layer from features [..., hidden] to logits [..., vocab]. A tied head uses the
    embedding's weight; a layer before it changes the features' size if needed. A discriminator's
    head has no logits of tokens: its module ``replaced`` predicts which tokens were replaced."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        own, size = config.head, config.embedding_dim if config.head.tied else config.hidden
        tokens = not own.replaced
        weight = tokens and not own.tied
        self.weight = nn.Parameter(torch.zeros(config.vocab, size)) if weight else None
        self.bias = nn.Parameter(torch.zeros(config.vocab)) if own.bias and tokens else None
        zero = config.zero_projections
        std = 0.0 if zero else EMBEDDING * (config.mup_base or size) ** -0.5
        matrix = Role(part="head", use="head", std=std, fan_in=size)
        roles.set_roles(self, weight=matrix, bias=Role(part="head", use="vector"))
        self.transform = transform(config, size) if tokens else None
        self.pair = builder_of("pair")(config) if own.pair != "none" else None
        self.replaced = builder_of("replaced")(config) if own.replaced else None
        self.boundary = builder_of("boundary")(config, size) if own.boundary else None


def with_task(
    config: ModelConfig,
    kind: TaskKind,
    labels: tuple[str, ...],
    answers: Answers = "label",
    pool: Before | None = None,
) -> ModelConfig:
    """Return the configuration with a task's head instead of the model's head. The new head can
    have a layer before its matrix only if the old head has one. In a model with a norm before each
    sublayer, such as ModernBERT, the new head keeps the old layer. In other models, the new head
    gets the layer ``pool`` for ``classify`` and ``choice``, and no layer for other tasks. The
    default of ``pool`` is BERT's pooler, or a layer with GELU in ELECTRA and DeBERTa. With the
    ``pool`` mean, or after a head with it, a head with the old layer reads a text's mean."""
    old = config.head.task
    if kind in ("classify", "choice") and old is not None and old.before == "mean":
        pool = "mean"
    with_gelu = config.head.replaced or config.position.kind == "disentangled"
    config = config.trunk
    before: Before = "nothing"
    if config.head.transform and config.norm.place == "pre":
        before = "mean" if pool == "mean" else "transform"
    elif config.head.transform and kind in ("classify", "choice"):
        before = pool or ("gelu" if with_gelu else "pool")
    task = Task(kind=kind, labels=labels, before=before, answers=answers)
    head = replace(
        config.head, pair="none", replaced=False, boundary=False, softcap=None, task=task
    )
    return replace(config, head=head)


def mean_of_texts(features: Tensor, documents: Tensor | None) -> Tensor:
    """Replace the features of each token by their mean over its document. ``features``: [batch,
    length, hidden]. ``documents``: [batch, length], None if each row is one document."""
    if documents is None:
        return features.mean(1, keepdim=True).expand_as(features)
    same = documents[:, :, None] == documents[:, None]
    return same.to(features.dtype) @ features / same.sum(-1, keepdim=True)


def name_with_task(name: str, task: Task) -> str:
    """Return the name of a weight after a head for ``task`` replaces the model's head, or "" if the
    weight is dropped. One layer of the old head may stay, before the new head's matrix: the layer
    ``transform`` or the pooler, if ``task.before`` names it or is ``mean``."""
    pool = "head.pair.pool."
    if task.before == "pool" and name.startswith(pool):
        return name.replace(pool, "head.transform.linear.")
    stays = task.before in ("transform", "mean") and name.startswith("head.transform.")
    return name if stays or not name.startswith(("head.", "mtp.", "generator.")) else ""
