"""The decoder: embedding, stack, head, and an encoder where it has one. What it costs is in
``measure/accounting.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.attention import ContextParallel
from train.model import roles
from train.model.cache import Cache, Seen, places_of
from train.model.config import ModelConfig
from train.model.dropout import Dropout, of_tokens, wrapped
from train.model.heads import PairHead, transform, widened
from train.model.mtp import ahead, modules
from train.model.norms import norm
from train.model.positions import EMBEDDING
from train.model.roles import Role
from train.model.stack import Stack

_SOURCE = 0x1B873593CC9E2D51  # between the seeds of decoder and encoder


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
        return x + self.segments(torch.zeros_like(tokens) if segments is None else segments)


class Head(nn.Module):
    """Features [..., hidden] to logits [..., vocab]; a tied one has the embedding's weight, and
    where that is narrower a matrix before it.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        own, size = config.head, config.embedded if config.head.tied else config.hidden
        self.weight = None if own.tied else nn.Parameter(torch.zeros(config.vocab, size))
        self.bias = nn.Parameter(torch.zeros(config.vocab)) if own.bias else None
        std = EMBEDDING * (config.mup_base or size) ** -0.5
        weight = Role(part="head", use="head", std=std, fan_in=size)
        roles.give(self, weight=weight, bias=Role(part="head", use="vector"))
        self.transform = transform(config, size)
        self.pair = PairHead(config) if own.pair != "none" else None


class Encoder(nn.Module):
    """What an encoder has of its own: a stack, and a norm after the embedding."""

    def __init__(self, config: ModelConfig, backend: str, decoder: Stack) -> None:
        super().__init__()
        assert config.encoder is not None
        self.norm = norm(config, config.positioned) if config.embedding.norm else nn.Identity()
        self.stack = Stack(config.reader, backend, decoder if config.encoder.shared else None)


class Decoder(nn.Module):
    """Token ids [batch, length] to logits [batch, length, vocab] in float32. ``both_ways``: whether
    it has learned to read a prompt both ways. Where it has an ``encoder``, that reads a source, of
    which the decoder's blocks see what it makes of it.
    """

    def __init__(self, config: ModelConfig, *, attention: str = "auto") -> None:
        super().__init__()
        self.config, self.both_ways = config, False
        self.embedding = Embedding(config)
        self.drop = Dropout(config.dropout, 0)
        self.stack = Stack(config, attention)
        self.encoder = None if config.encoder is None else Encoder(config, attention, self.stack)
        self.head = Head(config)
        self.mtp = modules(config, attention)

    @property
    def stacks(self) -> list[Stack]:
        """The decoder's, and the encoder's."""
        return [self.stack, *([] if self.encoder is None else [self.encoder.stack])]

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
        return features if self.head.transform is None else self.head.transform(features)

    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """The head's matrix [vocab, hidden], with tied embeddings theirs, and its bias [vocab]."""
        weight = self.embedding.weight if self.head.weight is None else self.head.weight
        return weight, self.head.bias

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
        seen: dict[str, Any] = {"documents": documents, "prefix": prefix, "cache": cache}
        seen["source"] = self._seen(source, source_documents, cache)
        if source is not None:
            seen["encoded"] = self.encode(source, source_documents, draws)
        places = places_of(tokens, documents, cache)
        index, own = torch.arange(tokens.shape[1], device=tokens.device)[None], places
        if parallel is not None:
            tokens, index, own = (parallel.own(each) for each in (tokens, index, places))
            segments = None if segments is None else parallel.own(segments)
        draws = None if draws is None else of_tokens(draws, index, self.config.hidden)
        x = self._embedded(tokens, segments, own, draws, self.stack, self.embedding.norm)
        seen |= {"draws": draws, "parallel": parallel, "tokens": tokens, "notes": notes}
        x = self.stack(x, places, **seen)
        return x if self.config.mup_base is None else x / self.config.wider

    def encode(
        self, tokens: Tensor, documents: Tensor | None = None, draws: Tensor | None = None
    ) -> Tensor:
        """What the encoder makes of a source: [batch, source, hidden]. ``documents`` and ``draws``
        as for ``features``.
        """
        assert self.encoder is not None
        places = places_of(tokens, documents)
        if draws is not None:  # others than the decoder's
            index = torch.arange(tokens.shape[1], device=tokens.device)[None]
            draws = of_tokens(draws + wrapped(_SOURCE), index, self.config.hidden)
        own = self.encoder
        x = self._embedded(tokens, None, places, draws, own.stack, own.norm)
        out: Tensor = own.stack(x, places, documents=documents, draws=draws, tokens=tokens)
        return out

    def _embedded(
        self,
        tokens: Tensor,
        segments: Tensor | None,
        places: Tensor,
        draws: Tensor | None,
        stack: Stack,
        normed: nn.Module,
    ) -> Tensor:
        """What the first block of a stack reads."""
        x, out = self.embedding(tokens, segments), self.embedding.out
        early = self.config.embedding.positions == "after"  # positions after it
        x = out(x) if early else x
        x = self.drop(normed(stack.positions.embed(x, places)), draws)
        return x if early else out(x)

    def _seen(
        self, source: Tensor | None, documents: Tensor | None, cache: Cache | None
    ) -> Seen | None:
        """What cross-attention sees of a source, or of that which a cache has read."""
        known = None if cache is None else cache.source
        if (source is None) != (self.encoder is None or known is not None):
            raise ValueError("a source goes with the first tokens, of an encoder-decoder alone")
        if source is None:
            return known
        read = Seen(length=source.shape[1], documents=documents)
        if cache is not None:
            cache.source = read
        return read

    def ahead(self, features: Tensor, tokens: Tensor, **seen: Tensor | None) -> Iterator[Tensor]:
        """What the head reads to predict later tokens; see ``mtp.ahead``."""
        return ahead(self, features, tokens, **seen)

    def empty_cache(self) -> Cache:
        """A cache for any number of texts."""
        return Cache(self.config)
