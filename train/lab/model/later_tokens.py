"""Modules that predict later tokens than the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from train.model.block import block
from train.model.cache import places_of
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.heads import HEADS
from train.model.layers import Notes, View, last_norm, norm, note, of_tokens
from train.model.roles import linear
from train.objectives.example import IGNORED
from train.objectives.losses import TERMS, Losses, Pass, Term, loss_sums


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


HEADS["mtp"] = modules
TERMS["mtp"] = of_later
