"""Heads, encoders, generators, and multi-token prediction, with the loss terms of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.lab.objectives.masked import insert_tokens, sampled
from train.model import roles
from train.model.block import block
from train.model.cache import token_positions
from train.model.config import ModelConfig, Task
from train.model.decoder import Decoder, Stack, embedding_projection
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.heads import HEADS, Transform
from train.model.layers import FUNCTIONS, Notes, View, last_norm, norm, note, token_seeds
from train.model.position_settings import NoPositions
from train.model.positions import EMBEDDING
from train.model.roles import Role, linear
from train.objective_settings import Replaced
from train.objectives.example import IGNORED
from train.objectives.losses import TERMS, Losses, Pass, Term, loss_sums


class PairHead(nn.Module):
    """Head from the first token's features to 2 logits: the segments belong together, or do not."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pool = roles.linear(config.hidden, config.hidden, part="head", bias=True)
        self.out = roles.linear(config.hidden, 2, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.pool(x)))


def pair_loss(losses: Losses, batch: Pass) -> dict[str, Term]:
    """Return the loss of segment pairs in nats. Without pairs, the loss and its gradient are 0."""
    head, features, example = losses.model.head.pair, batch.features, batch.example
    if example.pairs is None:
        nothing = 0.0 * head(features[:, 0]).float().sum()
        return {"pairs": Term(nothing, "targets", 1.0)}
    labels = losses.own(example.pairs)
    scored = labels != IGNORED
    logits = head(features.flatten(0, 1)[scored]).float()
    nats = F.cross_entropy(logits, labels[scored], reduction="sum")
    return {"pairs": Term(nats, "pairs", 1.0)}


PLACES = 20  # most places in a span that have their own embedding (SpanBERT's code)


class BoundaryHead(nn.Module):
    """Head that predicts a hidden span from the tokens beside it (Joshi et al. 2020, section 3.2).
    The inputs are the features of the tokens left and right of the span, each [tokens, hidden], and
    each token's place in its span, int64 [tokens]. The output matrix turns the result into
    logits."""

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__()
        hidden = config.hidden
        self.places = nn.Embedding(PLACES, hidden)
        role = Role(part="head", use="lookup", std=hidden**-0.5, fan_in=hidden)
        roles.set_roles(self.places, weight=role)
        self.first = roles.linear(3 * hidden, hidden, part="head", bias=True)
        self.second = roles.linear(hidden, size, part="head", bias=True)
        self.first_norm, self.second_norm = norm(config, hidden), norm(config, size)

    def forward(self, left: Tensor, right: Tensor, places: Tensor) -> Tensor:
        x = torch.cat([left, right, self.places(places).to(left.dtype)], -1)
        x = self.first_norm(F.gelu(self.first(x)))
        return self.second_norm(F.gelu(self.second(x)))


class SpanContext(NamedTuple):
    """The hidden span around each token, in arrays [rows * context]. ``left`` and ``right``: the
    indices of the tokens before and after the span. ``place``: the token's place in the span, from
    0. ``known``: True if the token is hidden, its place is below 20 (the head has no others), and
    the tokens ``left`` and ``right`` are in its document. The other fields count only if ``known``
    is True."""

    left: Tensor
    right: Tensor
    place: Tensor
    known: Tensor

    def at(self, places: Tensor) -> SpanContext:
        return SpanContext(*(part.index_select(0, places) for part in self))


def span_context(targets: Tensor, documents: Tensor | None) -> SpanContext:
    """Return the neighbours of hidden spans in ``targets`` [rows, context]; touching spans are
    one."""
    rows, context = targets.shape
    documents = torch.zeros_like(targets) if documents is None else documents
    hidden = targets != IGNORED
    numbers = torch.arange(context, device=targets.device).expand_as(targets)
    left = numbers.masked_fill(hidden, -1).cummax(-1).values
    right = numbers.masked_fill(hidden, context).flip(-1).cummin(-1).values.flip(-1)
    place = numbers - left - 1
    known = hidden & (left >= 0) & (right < context) & (place < PLACES)
    left, right = left.clamp(min=0), right.clamp(max=context - 1)
    for side in (left, right):
        known = known & (documents.gather(-1, side) == documents)
    first = torch.arange(rows, device=targets.device)[:, None] * context
    place = place.clamp(0, PLACES - 1)
    return SpanContext(*(part.flatten() for part in (first + left, first + right, place, known)))


def boundary_loss(losses: Losses, batch: Pass) -> dict[str, Term]:
    """Return the loss in nats of hidden tokens, each predicted from the neighbours of its span."""
    head, example, model = losses.model.head.boundary, batch.example, losses.model
    targets = example.targets.flatten()
    places = example.scored
    if places is None:
        places = (targets != IGNORED).nonzero().flatten()
    spans = span_context(example.targets, example.documents).at(places)
    x = batch.features.flatten(0, 1)
    read = head(x.index_select(0, spans.left), x.index_select(0, spans.right), spans.place)
    scored_targets = torch.where(spans.known, targets.index_select(0, places), IGNORED)
    nats = loss_sums(read, scored_targets, *model.head_weights(), chunk=batch.chunk)[0]
    return {"boundary": Term(nats, "targets", 1.0)}


class ReplacedHead(nn.Module):
    """Head that returns a float32 logit per token: the token was replaced (Clark et al. 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.linear = roles.linear(config.hidden, config.hidden, part="head", bias=True)
        self.activation = FUNCTIONS[ACTIVATIONS[config.feed_forward.activation][0]]
        self.out = roles.linear(config.hidden, 1, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.out(self.activation(self.linear(x)))[..., 0]
        return logits if logits.dtype == torch.float64 else logits.float()


class Generator(nn.Module):
    """Generator of replacement tokens: a smaller stack that reads the discriminator's embeddings of
    tokens, segments and learned positions (Clark et al. 2020, section 3.2). ``head`` maps features
    to vectors of the embedding's size. Their product with the embedding matrix gives the logits."""

    def __init__(self, config: ModelConfig, head: nn.Module, backend: str) -> None:
        super().__init__()
        self.config = config
        self.out = embedding_projection(config)
        looked_up = config.position.table
        self.stack = Stack(
            replace(config, position=NoPositions()) if looked_up else config, backend
        )
        self.head = head


def replaced_loss(losses: Losses, batch: Pass) -> dict[str, Term]:
    """Return the loss and accuracy of the discriminator, and the share of replaced tokens."""
    model, example, own = losses.model, batch.example, losses.config.objective
    loss_weight = (own if isinstance(own, Replaced) else Replaced()).weight
    places, chances = example.scored, example.chances
    assert places is not None and chances is not None
    chances = chances.flatten().index_select(0, places)
    drawn = sampled(batch.read, model.head_weights(), chances, batch.chunk)
    ids, changed = insert_tokens(example, places, drawn)
    logits = model.replaced(
        ids, documents=example.documents, segments=example.segments, draws=batch.draws
    )
    counted = torch.ones_like(changed) if example.documents is None else example.documents >= 0
    nats = F.binary_cross_entropy_with_logits(logits, changed.to(logits.dtype), reduction="none")
    right = (logits > 0) == changed
    return {
        "replaced": Term((nats * counted).sum(), "tokens", loss_weight),
        "replaced_accuracy": Term((right & counted).sum(), "tokens", 0.0),
        "replaced_share": Term((changed & counted).sum(), "tokens", 0.0),
    }


class Encoder(nn.Module):
    """The encoder of a model with encoder and decoder: a norm for the embedding, and a stack."""

    def __init__(self, config: ModelConfig, backend: str, decoder: Stack) -> None:
        super().__init__()
        assert config.encoder is not None
        self.norm = norm(config, config.position_dim) if config.embedding.norm else nn.Identity()
        self.stack = Stack(
            config.encoder_config, backend, decoder if config.encoder.shared else None
        )


class Pool(nn.Module):
    """The pooler in a classification head: tanh(linear(x)), or gelu(linear(x))."""

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.linear = roles.linear(config.hidden, config.hidden, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class TaskHead(nn.Module):
    """Head from features to logits [..., labels]. It has no bias if a decoder classifies texts."""

    pair = replaced = boundary = None

    def __init__(self, config: ModelConfig, task: Task) -> None:
        super().__init__()
        size = len(task.labels)
        self.weight = nn.Parameter(torch.zeros(size, config.hidden))
        bias = not (config.causal and task.kind == "classify")
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None
        std = EMBEDDING * config.hidden**-0.5
        weight = Role(part="head", use="head", std=std, fan_in=config.hidden)
        roles.set_roles(self, weight=weight, bias=Role(part="head", use="vector"))
        self.transform: nn.Module | None = None
        if task.before in ("pool", "gelu"):
            self.transform = Pool(config, torch.tanh if task.before == "pool" else F.gelu)
        elif task.before in ("transform", "mean"):
            self.transform = Transform(config, config.hidden)


class MtpModule(nn.Module):
    """Module ``depth`` (counted from 1) of multi-token prediction (DeepSeek-V3, arXiv 2412.19437,
    section 2.2). It joins the normalised features of the previous module with the normalised
    embedding of the token ``depth`` positions later, and applies a block. All modules share the
    main model's embedding and head."""

    def __init__(self, config: ModelConfig, depth: int, backend: str) -> None:
        super().__init__()
        self.token_norm, self.norm = norm(config), norm(config)
        self.join = linear(2 * config.hidden, config.hidden, part="mtp", bias=False)
        self.block = block(config, config.layers + depth - 1, backend)
        self.out_norm = last_norm(config)

    def forward(self, features: Tensor, embedded: Tensor, view: View) -> tuple[Tensor, Notes]:
        """Return this module's features and the notes (figures that the layers report in training).
        The previous ``features``, the ``embedded`` tokens and the result are [batch, length,
        hidden]."""
        both = torch.cat((self.token_norm(embedded), self.norm(features)), dim=-1)
        x, notes = self.block(self.join(both), view)
        return (x if self.out_norm is None else self.out_norm(x)), notes


def modules(config: ModelConfig, backend: str) -> nn.ModuleList:
    return nn.ModuleList(
        MtpModule(config, depth, backend) for depth in range(1, config.head.mtp + 1)
    )


def mtp_features(
    model: Decoder,
    features: Tensor,
    tokens: Tensor,
    *,
    documents: Tensor | None = None,
    prefix: Tensor | None = None,
    draws: Tensor | None = None,
    notes: dict[str, list[Tensor]] | None = None,
) -> Iterator[Tensor]:
    """Yield the head's input [batch, length, hidden] for each module of multi-token prediction. At
    each position, module k predicts the token that is k positions after the next one. ``features``
    are the model's for the same ``tokens``, ``documents``, ``prefix`` and ``draws``. The modules
    use the last block's mask. At positions whose target is past the document's end, the result is
    meaningless. ``notes`` receives the figures that the modules' layers report in training."""
    stack, pattern = model.stack, model.config.patterns[-1]
    places = token_positions(tokens, documents)
    if draws is not None:
        index = torch.arange(tokens.shape[1], device=tokens.device)[None]
        draws = token_seeds(draws, index, model.config.hidden)
    mask = stack.masks(features, places, documents, prefix, None)[pattern]
    rotation = stack.positions.rotation(places, pattern.window is not None)
    relation = stack.positions.relation(mask)
    counted = None if documents is None else documents >= 0
    view = View(mask=mask, rotation=rotation, draws=draws, counted=counted, relation=relation)
    for depth, module in enumerate(model.mtp, start=1):
        read = shifted(tokens, depth, 0)
        features, module_notes = module(features, model.embedding(read), replace(view, tokens=read))
        note(notes, module_notes)
        yield features


def shifted(x: Tensor, depth: int, end: int) -> Tensor:
    """Return x [batch, length] shifted left by ``depth`` positions and filled up with ``end``."""
    return nn.functional.pad(x[:, depth:], (0, depth), value=end)


def mtp_loss(losses: Losses, batch: Pass) -> dict[str, Term]:
    """Return the loss term of multi-token prediction: the mean loss of its modules, in nats."""
    example = batch.example
    model, sums = losses.model, []
    modules = mtp_features(
        model,
        batch.features,
        example.inputs,
        documents=example.documents,
        prefix=example.prefix,
        draws=batch.draws,
        notes=batch.notes,
    )
    for depth, read in enumerate(modules, start=1):
        targets = shifted(example.targets, depth, IGNORED)
        if example.documents is not None:  # no target is in another document
            same = shifted(example.documents, depth, -1) == example.documents
            targets = torch.where(same, targets, IGNORED)
        x = model.head_input(read.flatten(0, 1))
        sums.append(loss_sums(x, targets.flatten(), *model.head_weights(), chunk=batch.chunk)[0])
    return {"mtp": Term(torch.stack(sums).mean(), "targets", losses.config.mtp_weight)}


HEADS |= {
    "pair": PairHead,
    "boundary": BoundaryHead,
    "replaced": ReplacedHead,
    "generator": Generator,
    "encoder": Encoder,
    "task": TaskHead,
    "mtp": modules,
}
TERMS |= {"pair": pair_loss, "boundary": boundary_loss, "generator": replaced_loss, "mtp": mtp_loss}
