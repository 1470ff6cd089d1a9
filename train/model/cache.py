"""The cache of keys and values, with which only new tokens have to be computed. In a layer without
a window, the cache keeps all tokens. With a window, it keeps the sinks (the first tokens) and the
window, so that the memory does not grow with the text."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from train.attention import Mask, positions_of
from train.model.attention_settings import AttentionPattern
from train.model.config import ModelConfig


class LayerCache:
    """One layer's cached keys (already rotated) and values, each [batch, kv_heads, kept, head_dim].
    The values' last dimension may differ. ``cross``: the keys and values of an encoder's source."""

    def __init__(self) -> None:
        self.cross: tuple[Tensor, Tensor] | None = None
        self._store: tuple[Tensor, Tensor] | None = None
        self._length = 0

    def append(self, k: Tensor, v: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """Add new keys and values to the cache. Return all keys and values that the new tokens may
        see: the cached ones, then the new ones. ``kept`` [batch, kept keys]: which of the returned
        ones stay in the cache, as indices (None: all)."""
        if kept is None:
            return self._grow(k, v)
        if self._store is not None:
            k = torch.cat((self._store[0], k), dim=2)
            v = torch.cat((self._store[1], v), dim=2)
        index = kept[:, None, :, None].expand(-1, k.shape[1], -1, 1)
        self._store = (k.take_along_dim(index, 2), v.take_along_dim(index, 2))
        return k, v

    def _grow(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        end = self._length + k.shape[2]
        if self._store is None or self._store[0].shape[2] < end:
            room = max(end, 2 * self._length, 64)  # doubles, or each token would copy the text
            grown = _empty(k, room), _empty(v, room)
            if self._store is not None:
                for new, old in zip(grown, self._store, strict=True):
                    new[:, :, : self._length] = old[:, :, : self._length]
            self._store = grown
        keys, values = self._store
        keys[:, :, self._length : end] = k
        values[:, :, self._length : end] = v
        self._length = end
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self._store, self.cross = (
            None if held is None else (held[0][rows], held[1][rows])
            for held in (self._store, self.cross)
        )

    @property
    def bytes(self) -> int:
        held = (*(self._store or ()), *(self.cross or ()))
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _empty(like: Tensor, room: int) -> Tensor:
    batch, heads, _, size = like.shape
    return like.new_empty(batch, heads, room, size)


class CachedPositions:
    """The positions of the cached keys, for all layers with the same attention pattern. ``kept``
    [batch, kept keys]: the indices of the keys that stay in the cache (None: all)."""

    def __init__(self, pattern: AttentionPattern) -> None:
        self.pattern = pattern
        self.kept: Tensor | None = None
        self._cached: tuple[Tensor, Tensor] | None = None

    def extend(self, positions: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
        # Copied even if first: a view would be compiled apart from what later tokens make of it.
        before = self._cached or (positions[:, :0], documents[:, :0])
        positions = torch.cat((before[0], positions), dim=1)
        documents = torch.cat((before[1], documents), dim=1)
        self._cached = positions, documents
        if self.pattern.cached_tokens is not None:
            self.kept = self._choose(positions, documents)
            self._cached = positions.gather(1, self.kept), documents.gather(1, self.kept)
        return positions, documents

    def keep(self, rows: Tensor) -> None:
        if self._cached is not None:
            self._cached = self._cached[0][rows], self._cached[1][rows]

    def _choose(self, positions: Tensor, documents: Tensor) -> Tensor:
        assert self.pattern.cached_tokens is not None
        # Sinks and the newest tokens: all that a later token can see is among them.
        keys = positions.shape[1]
        index = torch.arange(keys, device=positions.device).expand(positions.shape)
        sink = (positions < self.pattern.sinks) & (documents >= 0)
        rank = torch.where(sink, index + keys, index)
        return rank.topk(min(keys, self.pattern.cached_tokens), dim=1).indices.sort(dim=1).values


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceTokens:
    """The tokens of an encoder's source. ``documents``: [batch, length]; None: one document."""

    length: int
    documents: Tensor | None

    def mask(self, queries: Tensor, documents: Tensor | None) -> Mask:
        """Return the cross-attention mask: queries [batch, length, hidden] see the source tokens of
        their document. ``documents`` [batch, length]: the queries' document numbers; None: one
        document."""
        batch, length, _ = queries.shape
        own, theirs = self.documents, documents
        if own is None and theirs is not None:
            own = theirs.new_zeros(batch, self.length)
        if theirs is None and own is not None:
            theirs = own.new_zeros(batch, length)
        return Mask(
            queries=length,
            keys=self.length,
            device=queries.device,
            causal=False,
            documents=own,
            query_documents=theirs,
        )


class Cache:
    """The caches of all layers, and the positions of the cached keys for each attention pattern.
    ``source``: the tokens that cross-attention sees, None until the encoder has read the source.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.layers = [LayerCache() for _ in config.patterns]
        self.positions = {pattern: CachedPositions(pattern) for pattern in config.patterns}
        self.padded = False
        self.source: SourceTokens | None = None
        self._next: Tensor | None = None  # [batch], position of the next token

    @property
    def started(self) -> bool:
        return self._next is not None

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the batch. ``rows``: int64 [kept rows], on the cache's device."""
        for layer in self.layers:
            layer.keep(rows)
        for pattern in self.positions.values():
            pattern.keep(rows)
        self._next = None if self._next is None else self._next[rows]
        if self.source is not None and self.source.documents is not None:
            self.source = replace(self.source, documents=self.source.documents[rows])

    def extend(
        self, pattern: AttentionPattern, positions: Tensor, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Add the positions and documents of new tokens. Returns the positions and the documents of
        all keys that the new tokens may see, [batch, keys] each. The returned documents are None if
        there is no padding."""
        if documents is None:
            documents = torch.zeros_like(positions)
        positions, documents = self.positions[pattern].extend(positions, documents)
        return positions, documents if self.padded else None

    def next_positions(
        self, batch: int, length: int, documents: Tensor | None, device: torch.device
    ) -> Tensor:
        """Return the positions of the new tokens, [batch, length], which follow those of the tokens
        already read. ``documents``: -1 for padding before a text, which is not counted.
        """
        if self._next is None:
            self._next = torch.zeros(batch, dtype=torch.long, device=device)
        real = torch.ones(batch, length, dtype=torch.long, device=device)
        if documents is not None:
            self.padded = True
            real = (documents >= 0).long()
        counted = real.cumsum(dim=1)
        positions = (self._next[:, None] + counted - real).clamp(min=0)
        self._next = self._next + counted[:, -1]
        return positions


def token_positions(tokens: Tensor, documents: Tensor | None, cache: Cache | None = None) -> Tensor:
    """Return the position of each token in its document: [batch or 1, length]. ``tokens``,
    ``documents``: [batch, length]. With a ``cache``, the positions continue from its last token."""
    if cache is not None:
        batch, length = tokens.shape
        return cache.next_positions(batch, length, documents, tokens.device)
    if documents is not None:
        return positions_of(documents)
    return torch.arange(tokens.shape[1], device=tokens.device)[None]
