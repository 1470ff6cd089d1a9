"""The output head, and heads for two segments, for replaced tokens and for spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train.model import roles
from train.model.block import block
from train.model.cache import places_of
from train.model.config import Before, ModelConfig, Task, TaskKind
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.layers import FUNCTIONS, Notes, View, last_norm, norm, note, of_tokens
from train.model.positions import EMBEDDING
from train.model.roles import Role, linear

if TYPE_CHECKING:
    from train.model.decoder import Decoder


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


class Pool(nn.Module):
    """What BERT's head for a text begins with: tanh(linear(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = roles.linear(config.hidden, config.hidden, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class TaskHead(nn.Module):
    """Features [..., hidden] to logits [..., labels]. It has a bias, but where a decoder's text is
    classified (as transformers' classes have it).
    """

    pair = replaced = boundary = None

    def __init__(self, config: ModelConfig, task: Task) -> None:
        super().__init__()
        size = len(task.labels)
        self.weight = nn.Parameter(torch.zeros(size, config.hidden))
        bias = not (config.causal and task.kind == "classify")
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None
        std = EMBEDDING * config.hidden**-0.5
        weight = Role(part="head", use="head", std=std, fan_in=config.hidden)
        roles.give(self, weight=weight, bias=Role(part="head", use="vector"))
        self.transform: nn.Module | None = None
        if task.before == "pool":
            self.transform = Pool(config)
        elif task.before == "transform":
            self.transform = Transform(config, config.hidden)


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


class Ahead(nn.Module):
    """One of DeepSeek-V3's sequential modules (arXiv 2412.19437, section 2.2), number ``depth``
    from 1 on: the features of the module before it and the embedding of the token ``depth`` later,
    each normed, side by side through a matrix and a block. Embedding and head are the model's own.
    """

    def __init__(self, config: ModelConfig, depth: int, backend: str) -> None:
        super().__init__()
        self.token_norm, self.norm = norm(config), norm(config)
        self.join = linear(2 * config.hidden, config.hidden, part="mtp", bias=False)
        self.block = block(config, config.layers + depth - 1, backend)
        self.out_norm = last_norm(config)

    def forward(self, features: Tensor, embedded: Tensor, view: View) -> tuple[Tensor, Notes]:
        """Features and embedded tokens [batch, length, hidden] to features; the block's notes."""
        both = torch.cat((self.token_norm(embedded), self.norm(features)), dim=-1)
        x, notes = self.block(self.join(both), view)
        return (x if self.out_norm is None else self.out_norm(x)), notes


def modules(config: ModelConfig, backend: str) -> nn.ModuleList:
    """Those of a configuration."""
    return nn.ModuleList(Ahead(config, depth, backend) for depth in range(1, config.head.mtp + 1))


def ahead(
    model: Decoder,
    features: Tensor,
    tokens: Tensor,
    *,
    documents: Tensor | None = None,
    prefix: Tensor | None = None,
    draws: Tensor | None = None,
    notes: dict[str, list[Tensor]] | None = None,
) -> Iterator[Tensor]:
    """What the head reads to predict the token one, two, ... behind the next, for each module of
    ``head.mtp``: [batch, length, hidden], of the features of ``tokens`` and their arguments. Where
    the document ends before, it means nothing. The modules see what the last block sees; what they
    say of the batch is added to ``notes``, behind what the layers said.
    """
    stack, sight = model.stack, model.config.sights[-1]
    places = places_of(tokens, documents)
    if draws is not None:
        index = torch.arange(tokens.shape[1], device=tokens.device)[None]
        draws = of_tokens(draws, index, model.config.hidden)
    mask = stack.masks(features, places, documents, prefix, None)[sight]
    rotation = stack.positions.rotation(places, sight.window is not None)
    relation = stack.positions.relation(mask)
    counted = None if documents is None else documents >= 0
    view = View(mask=mask, rotation=rotation, draws=draws, counted=counted, relation=relation)
    for depth, module in enumerate(model.mtp, start=1):
        read = later(tokens, depth, 0)
        features, module_notes = module(features, model.embedding(read), replace(view, tokens=read))
        note(notes, module_notes)
        yield features


def later(x: Tensor, depth: int, end: int) -> Tensor:
    """x [batch, length] of the position ``depth`` further on; ``end`` where the row has none."""
    return nn.functional.pad(x[:, depth:], (0, depth), value=end)


def later_targets(targets: Tensor, documents: Tensor | None, depth: int, ignored: int) -> Tensor:
    """Of each position the target ``depth`` further on in its document, or ``ignored``."""
    moved = later(targets, depth, ignored)
    if documents is None:
        return moved
    same = later(documents, depth, -1) == documents
    return torch.where(same, moved, ignored)
