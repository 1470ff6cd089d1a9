"""The stack: positions, masks and blocks over embedded tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.attention import ContextParallel, Mask, SharedMask, prepare
from train.device import in_products
from train.model import roles
from train.model.attention_settings import Sight
from train.model.block import View, block
from train.model.cache import Cache, Seen
from train.model.choices import positions
from train.model.config import ModelConfig
from train.model.dropout import wrapped
from train.model.feed_forward import note
from train.model.norms import last_norm, norm
from train.model.positions import EMBEDDING
from train.model.roles import Role


class Embedding(nn.Embedding):
    """A vector for each token, and for the segment that it is in."""

    def __init__(self, config: ModelConfig) -> None:
        own, size = config.embedding, config.embedded
        super().__init__(config.vocab, size)
        std = EMBEDDING * (config.mup_base or size) ** -0.5
        roles.give(self, weight=(role := Role(part="embedding", use="lookup", std=std)))
        self.segments = nn.Embedding(own.segments, size) if own.segments else None
        if self.segments is not None:
            roles.give(self.segments, weight=role)
        self.norm = norm(config, config.positioned) if own.norm else nn.Identity()
        self.out = widened(config)

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        x = super().forward(tokens)
        if self.segments is None:
            return x
        if segments is None:
            return x + self.segments(torch.zeros_like(tokens))
        return x + self.segments(segments.clamp(max=self.segments.num_embeddings - 1))


def widened(config: ModelConfig) -> nn.Module:
    """What leads from the embedding to the stack: a matrix where that is wider."""
    own = config.embedding
    if own.size is None:
        return nn.Identity()
    return roles.linear(own.size, config.hidden, part="embedding", bias=own.bias)


AGAIN = 0x2545F4914F6CDD1D  # between the seeds of two runs of a block


class Stack(nn.Module):
    """Blocks on embedded tokens, its own or those of ``other``. ``recompute``: every N-th block,
    each for 1 or True, keeps its input alone for the backward pass and runs again in it.
    """

    recompute: bool | int

    blocks: nn.ModuleList

    def __init__(self, config: ModelConfig, backend: str, other: Stack | None = None) -> None:
        super().__init__()
        self.config, self.backend, self.recompute = config, backend, False
        self.positions = positions(config)
        if other is None:
            self.blocks = nn.ModuleList(
                block(config, n, backend) for n in range(0, config.layers, config.share)
            )
        else:  # as no module of this one, so that each weight has one name
            vars(self)["blocks"] = other.blocks
        self.norm = last_norm(config)

    def forward(
        self,
        x: Tensor,
        places: Tensor,
        *,
        documents: Tensor | None = None,
        prefix: Tensor | None = None,
        cache: Cache | None = None,
        draws: Tensor | None = None,
        parallel: ContextParallel | None = None,
        tokens: Tensor | None = None,
        notes: dict[str, list[Tensor]] | None = None,
        source: Seen | None = None,
        encoded: Tensor | None = None,
    ) -> Tensor:
        """x [batch, length, hidden] at ``places``, as ``places_of`` gives them, to the same shape.
        With ``parallel`` x and ``tokens`` are this process's, all else but ``draws`` is of whole
        rows. ``notes``: filled with what the blocks say, by name. ``source``: what cross-attention
        sees, and ``encoded`` as in ``View``.
        """
        x = x.to(in_products(x))  # the stream: with float32 a step takes 1.05 times as long
        cross = None if source is None else source.mask(x, documents)
        masks: dict[Sight, Any] = self.masks(x, places, documents, prefix, cache)
        relations = {sight: self.positions.relation(mask) for sight, mask in masks.items()}
        if parallel is not None:
            masks = {s: SharedMask(parallel=parallel, rows=mask) for s, mask in masks.items()}
            places = parallel.own(places)
        rotations = {s: self.positions.rotation(places, s.window is not None) for s in masks}
        every = int(self.recompute) if cache is None and torch.is_grad_enabled() else 0
        if every:
            self._prepare(x, [*masks.values(), *([] if cross is None else [cross])])
        counted = None if documents is None else documents >= 0
        for layer, parts in self.config.steps:
            each, sight = self.blocks[layer // self.config.share], self.config.sights[layer]
            fields: dict[str, Any] = {"mask": masks[sight], "rotation": rotations[sight]}
            fields |= {"parts": parts, "tokens": tokens, "counted": counted}
            fields |= {"cross": cross, "encoded": encoded}
            if draws is not None:  # blocks that are run again draw anew
                fields["draws"] = draws + wrapped(layer % self.config.share * AGAIN)
            if cache is not None:
                fields |= {"cache": cache.layers[layer], "kept": cache.kinds[sight].kept}
            fields["relation"] = relations[sight]
            view = View(**fields)
            again = every and layer % every == 0
            out = checkpoint(each, x, view, use_reentrant=False) if again else each(x, view)
            x, layer_notes = out
            note(notes, layer_notes)
        return x if self.norm is None else self.norm(x)

    def _prepare(self, x: Tensor, masks: Iterable[Mask | SharedMask]) -> None:
        """What masks keep for all layers, made before the blocks are run twice."""
        own = self.config.attention
        like = x.new_empty(0, own.heads, x.shape[1], own.head_dim)
        for mask in masks:
            prepare(like, mask, self.backend, own.value_dim)

    def masks(
        self,
        x: Tensor,
        places: Tensor,
        documents: Tensor | None,
        prefix: Tensor | None,
        cache: Cache | None,
    ) -> dict[Sight, Mask]:
        """A mask for each kind of layer."""
        length, bias, masks = places.shape[1], self.positions.bias(), {}
        content, placed = self.positions.content, bias is not None or self.positions.content
        memory = cache is None and torch.is_grad_enabled()
        same: dict[str, Any] = {"queries": length, "device": x.device, "causal": self.config.causal}
        for sight in dict.fromkeys(self.config.sights):
            keys, where, docs = length, places, documents
            twice = memory and sight.segment is not None
            if cache is not None:
                where, docs = cache.extend(sight, places, documents)
                keys = where.shape[1]
            elif twice:
                keys, where = 2 * length, torch.cat((places, places), dim=1)
                docs = None if documents is None else torch.cat((documents, documents), dim=1)
            masks[sight] = Mask(
                **same,
                **vars(sight),
                keys=keys,
                documents=docs,
                prefix=prefix,
                positions=where if placed or sight.kept is not None else None,
                bias=bias,
                content=content,
                memory=twice,
                gaps=cache is not None and sight.kept is not None and keys > length,
            )
        return masks
