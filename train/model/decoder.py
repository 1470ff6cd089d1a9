"""The decoder: embedding, stack, head, and an encoder where it has one. What it costs is in
``measure/accounting.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from llmcurate.base.errors import UsageError
from train.attention import ContextParallel, Mask, SharedMask, prepare
from train.device import in_products
from train.model import roles
from train.model.attention_settings import Sight
from train.model.block import block
from train.model.cache import Cache, Seen, places_of
from train.model.config import ModelConfig
from train.model.heads import Head, other
from train.model.layers import Dropout, View, last_norm, norm, note, of_tokens, wrapped
from train.model.positions import EMBEDDING, Positions, positions
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
            again = wrapped(
                layer % self.config.share * AGAIN
            )  # blocks that are run again draw anew
            view = View(
                mask=masks[sight],
                rotation=rotations[sight],
                relation=relations[sight],
                parts=parts,
                tokens=tokens,
                counted=counted,
                cross=cross,
                encoded=encoded,
                draws=None if draws is None else draws + again,
                cache=None if cache is None else cache.layers[layer],
                kept=None if cache is None else cache.kinds[sight].kept,
            )
            twice = every and layer % every == 0
            out = checkpoint(each, x, view, use_reentrant=False) if twice else each(x, view)
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
                **vars(sight),
                causal=self.config.causal,
                device=x.device,
                queries=length,
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


_OTHER = 0x1B873593CC9E2D51  # between the seeds of a stack and of the one before it


class _Reading(NamedTuple):
    """How a stack reads tokens: what adds their positions, what norms, what leads to its width, and
    what is added to the seeds of dropout.
    """

    stack: Stack
    positions: Positions
    norm: nn.Module
    out: nn.Module
    seed: int = 0


class Decoder(nn.Module):
    """Token ids [batch, length] to logits [batch, length, vocab] in float32. ``both_ways``: whether
    it has learned to read a prompt both ways. Where it has an ``encoder``, that reads a source, of
    which the decoder's blocks see what it makes of it. Where it has a ``generator``, features and
    logits of tokens are that one's, and what the model itself says is ``replaced``.
    """

    def __init__(self, config: ModelConfig, *, attention: str = "auto") -> None:
        super().__init__()
        self.config, self.both_ways = config, False
        self.embedding = Embedding(config)
        self.drop = Dropout(config.dropout, 0)
        self.stack = Stack(config, attention)
        self.encoder: Any = None
        if config.encoder is not None:
            self.encoder = other("encoder")(config, attention, self.stack)
        task = config.head.task
        self.head: Any = Head(config) if task is None else other("task")(config, task)
        self.mtp = other("mtp")(config, attention) if config.head.mtp else nn.ModuleList()
        small = config.generating
        self.generator: Any = None
        if small is not None:
            self.generator = other("generator")(small, Head(small), attention)

    @property
    def stacks(self) -> list[Stack]:
        """Its own, and an encoder's or a generator's."""
        others = (self.encoder, self.generator)
        return [self.stack, *(other.stack for other in others if other is not None)]

    def initialise(self, seed: int) -> None:
        """First weights from the seed alone; see ``roles.initialise``."""
        roles.initialise(self, seed)

    def forward(self, tokens: Tensor, **kwargs: Any) -> Tensor:
        """Logits; the arguments of ``features``."""
        return self.logits(self.features(tokens, **kwargs))

    def logits(self, features: Tensor) -> Tensor:
        """[..., hidden] to [..., vocab] in float32 (or wider)."""
        out = F.linear(self.read_out(features), *self.head_weights())
        return out if out.dtype == torch.float64 else out.float()

    def read_out(self, features: Tensor) -> Tensor:
        """What the head's matrix is multiplied by."""
        transform = self._predicts.transform
        return features if transform is None else transform(features)

    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """The head's matrix [vocab, hidden], with tied embeddings theirs, and its bias [vocab]; of
        a task [labels, hidden] and [labels].
        """
        head = self._predicts
        return self.embedding.weight if head.weight is None else head.weight, head.bias

    @property
    def _predicts(self) -> Head:
        head: Any = self.head if self.generator is None else self.generator.head
        if head.replaced is not None:
            raise UsageError("a discriminator predicts no tokens: give its generator's folder")
        return head  # type: ignore[no-any-return]

    def features(
        self,
        tokens: Tensor,
        *,
        documents: Tensor | None = None,
        prefix: Tensor | None = None,
        cache: Cache | None = None,
        segments: Tensor | None = None,
        draws: Tensor | None = None,
        parallel: ContextParallel | None = None,
        notes: dict[str, list[Tensor]] | None = None,
        source: Tensor | None = None,
        source_documents: Tensor | None = None,
    ) -> Tensor:
        """What the head reads: [batch, length, hidden].

        ``documents`` [batch, length]: positions of different documents do not see each other, and
        each document counts its positions from 0 within the row. ``prefix``: bool
        [batch, length], tokens that all of their document see. With a ``cache`` the tokens
        continue what it holds, and are added to it; there ``documents`` is -1 for the padding
        before shorter texts of a batch. ``segments``: int64 [batch, length], 0 for all where
        absent. ``draws``: int64 [batch], what decides on dropout. With ``parallel`` the result is
        that of this process's tokens of the rows. ``notes``: filled with what the layers say of
        the batch in training, by name, a tensor a layer. ``source``: int64 [batch, source], what an
        encoder reads; a cache keeps what becomes of it, and only the first tokens come with it.
        ``source_documents``: of its tokens, which those of the same document see, and -1 for
        padding.
        """
        if cache is not None and prefix is not None and cache.started:
            raise ValueError("a prefix goes with the first tokens of a text")
        x = self._read(
            self._predictor,
            tokens,
            documents,
            segments,
            draws,
            **self._of_source(source, source_documents, cache, draws),
            prefix=prefix,
            cache=cache,
            parallel=parallel,
            notes=notes,
        )
        return x if self.config.mup_base is None else x / self.config.wider

    def encode(
        self, tokens: Tensor, documents: Tensor | None = None, draws: Tensor | None = None
    ) -> Tensor:
        """What the encoder makes of a source: [batch, source, hidden]. ``documents`` and ``draws``
        as for ``features``.
        """
        own = self.encoder
        assert own is not None
        by = _Reading(own.stack, own.stack.positions, own.norm, self.embedding.out, wrapped(_OTHER))
        return self._read(by, tokens, documents, None, draws)

    def replaced(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        segments: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> Tensor:
        """A discriminator's logits of whether each token was replaced: float32 [batch, length].
        ``documents``, ``segments`` and ``draws`` as for ``features``.
        """
        head = self.head.replaced
        assert head is not None
        logits: Tensor = head(self._read(self._own, tokens, documents, segments, draws))
        return logits

    @property
    def _own(self) -> _Reading:
        return _Reading(self.stack, self.stack.positions, self.embedding.norm, self.embedding.out)

    @property
    def _predictor(self) -> _Reading:
        """What predicts tokens: the model's own stack, or a generator's."""
        own, small = self._own, self.generator
        if small is None:
            return own
        return _Reading(small.stack, own.positions, own.norm, small.out, wrapped(_OTHER))

    def _read(
        self,
        by: _Reading,
        tokens: Tensor,
        documents: Tensor | None,
        segments: Tensor | None,
        draws: Tensor | None,
        cache: Cache | None = None,
        parallel: ContextParallel | None = None,
        **seen: Any,
    ) -> Tensor:
        places = places_of(tokens, documents, cache)
        index, own = torch.arange(tokens.shape[1], device=tokens.device)[None], places
        if parallel is not None:
            tokens, index, own = (parallel.own(each) for each in (tokens, index, places))
            segments = None if segments is None else parallel.own(segments)
        if draws is not None:
            draws = of_tokens(draws + by.seed, index, self.config.hidden)
        x = self.embedding(tokens, segments)
        wide = self.config.embedding.positions == "after"  # positions come after ``out``
        x = by.positions.embed(by.out(x) if wide else x, own)
        x = self.drop(by.norm(x), draws)
        seen |= {"documents": documents, "cache": cache, "parallel": parallel}
        out: Tensor = by.stack(x if wide else by.out(x), places, draws=draws, tokens=tokens, **seen)
        return out

    def _of_source(
        self,
        source: Tensor | None,
        documents: Tensor | None,
        cache: Cache | None,
        draws: Tensor | None,
    ) -> dict[str, Seen | Tensor | None]:
        """What cross-attention sees: a source, or that which a cache has read."""
        seen = None if cache is None else cache.source
        if (source is None) != (self.encoder is None or seen is not None):
            raise ValueError("a source goes with the first tokens, of an encoder-decoder alone")
        if source is None:
            return {"source": seen}
        seen = Seen(length=source.shape[1], documents=documents)
        if cache is not None:
            cache.source = seen
        return {"source": seen, "encoded": self.encode(source, documents, draws)}

    def empty_cache(self) -> Cache:
        """A cache for any number of texts."""
        return Cache(self.config)


def in_whole(name: str, config: ModelConfig) -> str:
    """Where the weight ``name`` of the generator as a model of its own is in the whole model."""
    shared = name.startswith("embedding.") and not name.startswith("embedding.out.")
    if shared or (name.startswith("stack.positions.") and config.position.table):
        return name
    return "generator." + name.removeprefix("embedding.")
