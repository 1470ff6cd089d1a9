"""Multi-token prediction: modules that follow the stack and predict the tokens after the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from train.model.block import View, block
from train.model.cache import places_of
from train.model.config import ModelConfig
from train.model.dropout import of_tokens
from train.model.feed_forward import Notes, note
from train.model.norms import last_norm, norm
from train.model.roles import linear

if TYPE_CHECKING:
    from train.model.decoder import Decoder


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
