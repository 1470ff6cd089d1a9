"""Keys and values of the tokens seen, so that each new token costs one step.

A full layer keeps all of them; a layer with a window keeps the sinks and the window, so that its
memory does not grow with the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from train.attention import Mask, positions_of
from train.model.attention_settings import Sight
from train.model.config import ModelConfig


class LayerCache:
    """One layer's keys and values [batch, kv_heads, kept, head_dim], already rotated; the values
    may have other dimensions, or none. ``cross``: those of an encoder's source, all of them.
    """

    def __init__(self) -> None:
        self.cross: tuple[Tensor, Tensor] | None = None
        self._store: tuple[Tensor, Tensor] | None = None
        self._length = 0

    def append(self, k: Tensor, v: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """All keys and values that the new ones may look at, the new ones last.

        ``kept`` [batch, n]: the positions among these that stay; None: all do.
        """
        if kept is None:
            return self._grow(k, v)
        if self._store is not None:
            k = torch.cat((self._store[0], k), dim=2)
            v = torch.cat((self._store[1], v), dim=2)
        index = kept[:, None, :, None].expand(-1, k.shape[1], -1, 1)
        self._store = (k.take_along_dim(index, 2), v.take_along_dim(index, 2))
        return k, v

    def _grow(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Written into room that doubles, so that a long text is not copied at each token."""
        end = self._length + k.shape[2]
        if self._store is None or self._store[0].shape[2] < end:
            room = max(end, 2 * self._length, 64)
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

    @property
    def bytes(self) -> int:
        """Memory held."""
        held = (*(self._store or ()), *(self.cross or ()))
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _empty(like: Tensor, room: int) -> Tensor:
    batch, heads, _, size = like.shape
    return like.new_empty(batch, heads, room, size)


class Kind:
    """Where the keys stand that layers of one sight have cached.

    ``positions`` and ``documents``: [batch, keys], of all keys that the newest tokens look at;
    ``kept`` [batch, n]: which of them stay, None for all.
    """

    def __init__(self, sight: Sight) -> None:
        self.sight = sight
        self.kept: Tensor | None = None
        self._stay: tuple[Tensor, Tensor] | None = None

    def extend(self, positions: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
        if self._stay is not None:
            positions = torch.cat((self._stay[0], positions), dim=1)
            documents = torch.cat((self._stay[1], documents), dim=1)
        self._stay = positions, documents
        if self.sight.kept is not None:
            self.kept = self._choose(positions, documents)
            self._stay = positions.gather(1, self.kept), documents.gather(1, self.kept)
        return positions, documents

    def _choose(self, positions: Tensor, documents: Tensor) -> Tensor:
        """The sinks and the latest, by index: what a later token may still see is among them."""
        assert self.sight.kept is not None
        keys = positions.shape[1]
        index = torch.arange(keys, device=positions.device).expand(positions.shape)
        sink = (positions < self.sight.sinks) & (documents >= 0)
        rank = torch.where(sink, index + keys, index)
        return rank.topk(min(keys, self.sight.kept), dim=1).indices.sort(dim=1).values


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """The tokens of an encoder's source: how many, and their ``documents`` [batch, length], or None
    where all is one.
    """

    length: int
    documents: Tensor | None

    def mask(self, queries: Tensor, documents: Tensor | None) -> Mask:
        """What queries [batch, length, hidden] of these ``documents`` see of it."""
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
    """The caches of all layers, by layer, and of where the keys stand, by kind of layer;
    ``source``: what cross-attention sees, once it is read.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.layers = [LayerCache() for _ in config.sights]
        self.kinds = {sight: Kind(sight) for sight in config.sights}
        self.padded = False
        self.source: Seen | None = None
        self._next: Tensor | None = None  # the position of the next token, [batch]

    @property
    def started(self) -> bool:
        """Whether it holds tokens."""
        return self._next is not None

    @property
    def bytes(self) -> int:
        """Memory held by keys and values."""
        return sum(layer.bytes for layer in self.layers)

    def extend(
        self, sight: Sight, positions: Tensor, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Where all keys stand that the new tokens look at in layers of this sight, and their
        documents, or None where there is no padding.
        """
        if documents is None:
            documents = torch.zeros_like(positions)
        positions, documents = self.kinds[sight].extend(positions, documents)
        return positions, documents if self.padded else None

    def next_positions(
        self, batch: int, length: int, documents: Tensor | None, device: torch.device
    ) -> Tensor:
        """Positions of the new tokens [batch, length], counted on from those seen.

        ``documents``: -1 for padding before a text, which takes no position.
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


def places_of(tokens: Tensor, documents: Tensor | None, cache: Cache | None = None) -> Tensor:
    """The position of each token in its document, [batch or 1, length], for tokens and documents
    [batch, length], which go on where a cache ends.
    """
    if cache is not None:
        batch, length = tokens.shape
        return cache.next_positions(batch, length, documents, tokens.device)
    if documents is not None:
        return positions_of(documents)
    return torch.arange(tokens.shape[1], device=tokens.device)[None]
