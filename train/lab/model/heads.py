"""Encoders of encoder-decoders; heads of encoders: of two segments, of replaced tokens, of spans
and of tasks; the generator of a discriminator; modules that predict later tokens than the next; and
what they add to the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.lab.objectives.masked import put_in, sampled
from train.model import roles
from train.model.block import block
from train.model.cache import places_of
from train.model.config import ModelConfig, Task
from train.model.decoder import Decoder, Stack, widened
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.heads import HEADS, Transform
from train.model.layers import FUNCTIONS, Notes, View, last_norm, norm, note, of_tokens
from train.model.position_settings import NoPositions
from train.model.positions import EMBEDDING
from train.model.roles import Role, linear
from train.objective_settings import Replaced
from train.objectives.example import IGNORED
from train.objectives.losses import TERMS, Losses, Pass, Term, loss_sums


class PairHead(nn.Module):
    """Features of the first token to two logits: whether two segments belong together, or not."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pool = roles.linear(config.hidden, config.hidden, part="head", bias=True)
        self.out = roles.linear(config.hidden, 2, part="head", bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.pool(x)))


def of_pairs(losses: Losses, batch: Pass) -> dict[str, Term]:
    """Nats of the pairs of segments; of none nothing, in which the head takes part."""
    head, features, example = losses.model.head.pair, batch.features, batch.example
    if example.pairs is None:
        nothing = 0.0 * head(features[:, 0]).float().sum()
        return {"pairs": Term(nothing, "targets", 1.0)}
    labels = losses.own(example.pairs)
    scored = labels != IGNORED
    logits = head(features.flatten(0, 1)[scored]).float()
    nats = F.cross_entropy(logits, labels[scored], reduction="sum")
    return {"pairs": Term(nats, "pairs", 1.0)}


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


class Beside(NamedTuple):
    """Of each token of the flattened rows, [rows * context]: where the tokens ``left`` and
    ``right`` of its span stand, its ``place`` in the span, from 0, and whether it is ``known`` by
    them: it is hidden, the span lies within its document, and its place is below 20.
    """

    left: Tensor
    right: Tensor
    place: Tensor
    known: Tensor

    def at(self, places: Tensor) -> Beside:
        """Of some of the tokens."""
        return Beside(*(part.index_select(0, places) for part in self))


def beside(targets: Tensor, documents: Tensor | None) -> Beside:
    """What stands beside the spans of hidden tokens of rows [rows, context]. Spans that meet are
    one.
    """
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
    return Beside(*(part.flatten() for part in (first + left, first + right, place, known)))


def of_spans(losses: Losses, batch: Pass) -> dict[str, Term]:
    """Nats of hidden tokens by what stands beside their spans."""
    head, example, model = losses.model.head.boundary, batch.example, losses.model
    targets = example.targets.flatten()
    places = example.scored
    if places is None:
        places = (targets != IGNORED).nonzero().flatten()
    spans = beside(example.targets, example.documents).at(places)
    x = batch.features.flatten(0, 1)
    read = head(x.index_select(0, spans.left), x.index_select(0, spans.right), spans.place)
    scored_targets = torch.where(spans.known, targets.index_select(0, places), IGNORED)
    nats = loss_sums(read, scored_targets, *model.head_weights(), chunk=batch.chunk)[0]
    return {"boundary": Term(nats, "targets", 1.0)}


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


class Generator(nn.Module):
    """A smaller stack on the discriminator's embeddings, which are the same for both: those of
    tokens, of positions that are looked up, and of segments (Clark et al. 2020, section 3.2).
    ``head``: to the embedding's dimensions, and with the embedding to the vocabulary.
    """

    def __init__(self, config: ModelConfig, head: nn.Module, backend: str) -> None:
        super().__init__()
        self.config = config
        self.out = widened(config)
        looked_up = config.position.table
        self.stack = Stack(
            replace(config, position=NoPositions()) if looked_up else config, backend
        )
        self.head = head


def of_replaced(losses: Losses, batch: Pass) -> dict[str, Term]:
    """What the discriminator says of the rows with the generator's tokens."""
    model, example, own = losses.model, batch.example, losses.config.objective
    weighs = (own if isinstance(own, Replaced) else Replaced()).weight
    places, chances = example.scored, example.chances
    assert places is not None and chances is not None
    weight, bias = model.head_weights()
    drawn = sampled(
        batch.read, weight, bias, chances.flatten().index_select(0, places), batch.chunk
    )
    ids, others = put_in(example, places, drawn)
    logits = model.replaced(
        ids, documents=example.documents, segments=example.segments, draws=batch.draws
    )
    counted = torch.ones_like(others) if example.documents is None else example.documents >= 0
    nats = F.binary_cross_entropy_with_logits(logits, others.to(logits.dtype), reduction="none")
    right = (logits > 0) == others
    return {
        "replaced": Term((nats * counted).sum(), "tokens", weighs),
        "replaced_accuracy": Term((right & counted).sum(), "tokens", 0.0),
        "replaced_share": Term((others & counted).sum(), "tokens", 0.0),
    }


class Encoder(nn.Module):
    """What the encoder of an encoder-decoder has of its own: a stack, and a norm after the
    embedding.
    """

    def __init__(self, config: ModelConfig, backend: str, decoder: Stack) -> None:
        super().__init__()
        assert config.encoder is not None
        self.norm = norm(config, config.positioned) if config.embedding.norm else nn.Identity()
        self.stack = Stack(config.reader, backend, decoder if config.encoder.shared else None)


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


def of_later(losses: Losses, batch: Pass) -> dict[str, Term]:
    """The mean of the modules' nats."""
    example = batch.example
    model, sums = losses.model, []
    modules = ahead(
        model,
        batch.features,
        example.inputs,
        documents=example.documents,
        prefix=example.prefix,
        draws=batch.draws,
        notes=batch.notes,
    )
    for depth, read in enumerate(modules, start=1):
        targets = later_targets(example.targets, example.documents, depth, IGNORED)
        x = model.read_out(read.flatten(0, 1))
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
TERMS |= {"pair": of_pairs, "boundary": of_spans, "generator": of_replaced, "mtp": of_later}
