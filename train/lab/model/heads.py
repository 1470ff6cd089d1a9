"""Heads of encoders: of two segments, of replaced tokens, of spans and of tasks; the generator of a
discriminator; and what they add to the loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.lab.objectives.masked import put_in, sampled
from train.model import roles
from train.model.config import ModelConfig, Task
from train.model.decoder import Stack, widened
from train.model.feed_forward_settings import ACTIVATIONS
from train.model.heads import HEADS, Transform
from train.model.layers import FUNCTIONS, norm
from train.model.position_settings import NoPositions
from train.model.positions import EMBEDDING
from train.model.roles import Role
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


HEADS |= {
    "pair": PairHead,
    "boundary": BoundaryHead,
    "replaced": ReplacedHead,
    "generator": Generator,
    "task": TaskHead,
}
TERMS |= {"pair": of_pairs, "boundary": of_spans, "generator": of_replaced}
