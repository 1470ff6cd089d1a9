"""The attention mask: the keys that each query sees, and the bias that is added to the scores."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from train.attention.flash.spans import Spans, bounds, spans


def window_mask(mask: Mask) -> Tensor:
    """Return True for each key that a query sees by window, sinks, globals and random blocks: bool
    [batch or 1, heads or 1, queries, keys]. Documents, prefix and causality are not applied."""
    assert mask.window is not None
    places = mask.key_positions // mask.block
    own = places[:, None, mask.offset : mask.offset + mask.queries, None]
    keys = places[:, None, None, :]
    away = (own - keys).abs()
    if mask.dilations:
        step = torch.tensor(mask.dilations, device=mask.device)[:, None, None]
        seen = (away < mask.window * step) & (away % step == 0)
    else:
        seen = away < mask.window
    if mask.sinks:
        seen = seen | (mask.key_positions[:, None, None, :] < mask.sinks)
    if mask.globals:
        seen = seen | (own < mask.globals) | (keys < mask.globals)
    if mask.random:
        seen = seen | _random_mask(mask, own, keys)
    return seen


def segment_mask(mask: Mask) -> Tensor:
    """Return True for keys in segments that a query sees: bool [batch or 1, 1, queries, keys]."""
    assert mask.segment is not None
    segments = mask.key_positions // mask.segment
    own = segments[:, None, mask.offset : mask.offset + mask.queries, None]
    back = own - segments[:, None, None, :]
    if not mask.memory:
        return back <= 1
    return back == (torch.arange(mask.keys, device=mask.device) < mask.offset).long()


def _random_mask(mask: Mask, own: Tensor, keys: Tensor) -> Tensor:
    most = -(-mask.keys // mask.block)
    if mask.documents is None:
        blocks = torch.full_like(own, most)
    else:
        starts, ends = bounds(mask.documents)
        counts = -(-(ends - starts) // mask.block)
        blocks = counts[:, None, mask.offset : mask.offset + mask.queries, None].long()
    table = random_blocks(most, mask.window, mask.globals, mask.random, mask.draw)
    chosen = table.to(mask.device)[blocks, own.expand(blocks.shape)]  # [..., queries, 1, random]
    return (chosen == keys[..., None]).any(dim=-1)


@lru_cache(maxsize=64)
def random_blocks(most: int, window: int, first: int, count: int, draw: int) -> Tensor:
    """Draw random blocks of keys for each block of queries: int64 [most + 1, most, count]. Entry
    [n, i] is for block i of a document of n blocks: the ``count`` blocks that it sees, filled up
    with -1. These are at least ``window`` blocks away from block i. The document's ``first`` blocks
    neither see random blocks nor are drawn. ``draw`` is the seed. ``most``, the number of blocks in
    a row, does not change the result for a document."""
    order = torch.tensor(
        [
            [number() for _ in range(most)]
            for number in (random.Random(draw * 2**32 + block).random for block in range(most))
        ],
        dtype=torch.float64,
    )
    index = torch.arange(most)
    free = (index[:, None] - index).abs() >= window
    free &= (index[:, None] >= first) & (index >= first)
    table = torch.full((most + 1, most, count), -1)
    for blocks in range(1, most + 1):
        rank = torch.where(free & (index < blocks), order, torch.inf)
        lowest, chosen = rank.topk(min(count, most), dim=1, largest=False)
        table[blocks, :, : chosen.shape[1]] = torch.where(lowest < torch.inf, chosen, -1)
    return table


Value = TypeVar("Value")


class once(Generic[Value]):
    """``functools.cached_property`` without a lock. Before Python 3.12 the original takes a lock,
    at which ``torch.compile`` breaks its graph."""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Value:
        if owner is None:  # accessed on the class
            return self  # type: ignore[return-value]
        value = self.make(owner)
        object.__setattr__(owner, self.name, value)
        return value


class Bias(Protocol):
    """A term that is added to the scores. Some back ends compute the bias of T5 and ALiBi (the
    classes in ``FORMS``) by formulas of their own. Any other class, such as a user's own, works
    only with back ends that call ``scores``."""

    def scores(self, distance: Tensor) -> Tensor:
        """Return the bias of each head for ``distance`` [batch or 1, queries, keys]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Alibi:
    """ALiBi: minus the absolute distance times each head's slope [heads] (Press et al. 2022)."""

    slopes: Tensor

    def scores(self, distance: Tensor) -> Tensor:
        slopes = self.slopes.to(distance.device)
        return -slopes[:, None, None] * distance[:, None].abs().to(slopes.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Relative:
    """T5's bias: a learned number for each bucket of distances (Raffel et al. 2020). ``weight``:
    [buckets, heads]. With ``both_ways``, half of the buckets are for keys after the query; without
    it, these count as distance 0. In each direction, half of the buckets hold one distance each;
    the others widen with the logarithm up to ``distance``, and larger distances share the last."""

    weight: Tensor
    distance: int
    both_ways: bool = False

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance. Distances are negative for keys after the query."""
        buckets, ahead = self.weight.shape[0], torch.zeros_like(distance)
        away = distance.clamp(min=0)
        if self.both_ways:
            buckets, away = buckets // 2, distance.abs()
            ahead = buckets * (distance < 0).long()
        exact = buckets // 2
        ratio = torch.log(away.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        large = exact + (ratio * (buckets - exact)).long()
        return ahead + torch.where(away < exact, away, large.clamp(max=buckets - 1))

    def scores(self, distance: Tensor) -> Tensor:
        return self.weight[self.bucket(distance)].permute(0, 3, 1, 2)


# Looked up by the exact class: a back end with its own formula does not know what a subclass
# changes.
FORMS: dict[type, str] = {Alibi: "alibi", Relative: "relative"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    """The keys that each query sees.

    A row has ``keys`` tokens: earlier ones, then the queries, then ``ahead`` others.

    ``causal``: True if a query sees no keys after its own position.
    ``documents``: int [batch, keys]. The document of each key. A query sees only keys of its own
        document. A query and the key at the same position belong to the same document.
    ``query_documents``: int [batch, queries]. The document of each query, if queries are other
        tokens than keys.
    ``window``: a query sees the keys that are less than this distance away, on either side.
    ``sinks``: the number of first positions of a document that are visible outside the window.
    ``globals``: in an encoder with a window, the number of first tokens of a document that see all
        its tokens and are seen by all.
    ``random``: in an encoder with a window, the number of further keys that each query sees. They
        are drawn at random. ``draw`` is the seed.
    ``block``: ``window``, ``globals`` and ``random`` count blocks of this many tokens.
    ``dilations``: a number d per head: its window has every d-th key and reaches d times further.
    ``segment``: documents are divided into segments of this many tokens. A query sees its own
        segment and the segment before.
    ``memory``: True if the keys are two copies of all tokens. A query sees the segment before its
        own in the first copy, and its own segment in the second.
    ``prefix``: bool [batch, keys], True for keys that all queries of the document see, whatever the
        other fields say.
    ``positions``: int [batch or 1, keys]. The position of each key in its document, for window,
        sinks and bias. None: positions count from the start of the row.
    ``bias``: a term that is added to the scores.
    ``gaps``: True if a cache has dropped keys, so that positions may jump within a document.
    ``content``: True if each layer gives ``attend`` its own scores (``added``), which are added to
        the scores of queries and keys.
    ``softcap``: a number c; products of queries and keys become c * tanh(product / c).
    """

    queries: int
    keys: int
    device: torch.device
    causal: bool = True
    documents: Tensor | None = None
    query_documents: Tensor | None = None
    window: int | None = None
    sinks: int = 0
    globals: int = 0
    random: int = 0
    draw: int = 0
    block: int = 1
    dilations: tuple[int, ...] = ()
    segment: int | None = None
    memory: bool = False
    prefix: Tensor | None = None
    positions: Tensor | None = None
    bias: Bias | None = None
    gaps: bool = False
    content: bool = False
    softcap: float | None = None
    ahead: int = 0

    @property
    def offset(self) -> int:
        """The number of keys before the first query, from a cache or from another process."""
        return self.keys - self.queries - self.ahead

    @property
    def features(self) -> frozenset[str]:
        """The features that a back end must support. A plain mask has none, or only ``causal``."""
        names = {"causal"} if self.causal else set()
        if self.documents is not None:
            names.add("documents")
        if self.causal and self.offset:
            names.add("offset")
        if self.query_documents is not None:
            names.add("cross")
        if self.window is not None:
            names.add("window")
            if self.sinks:
                names.add("sinks")
            if self.globals or self.random or self.block > 1 or self.dilations:
                names.add("pattern")
        if self.segment is not None:
            names.add("segments")
        if self.prefix is not None:
            names.add("prefix")
        if self.bias is not None:
            names.add(FORMS.get(type(self.bias), "bias"))
        if self.gaps:
            names.add("gaps")
        if self.content:
            names.add("content")
        if self.softcap is not None:
            names.add("softcap")
        if self.ahead:
            names.add("ahead")
        return frozenset(names)

    def of_queries(self, first: int, last: int) -> Mask:
        """Return the mask for queries ``first`` to ``last`` - 1 only. This mask must have as many
        queries as keys. If it is causal and has no prefix, keys from ``last`` on are left out,
        because none of these queries sees them."""
        keys = self.keys if self.prefix is not None or not self.causal else last

        def cut(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[:, :keys]

        return replace(
            self,
            queries=last - first,
            keys=keys,
            documents=cut(self.documents),
            prefix=cut(self.prefix),
            positions=cut(self.positions),
            ahead=keys - last,
        )

    @once
    def key_positions(self) -> Tensor:
        """The position of each key, by default its index in the row: int64 [batch or 1, keys]."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.keys, device=self.device)[None]

    @once
    def spans(self) -> Spans:
        """The mask as a few numbers per key, which the Triton kernels read. Computed once."""
        return spans(
            keys=self.keys,
            documents=self.documents,
            prefix=self.prefix,
            positions=self.key_positions if self.sinks else None,
        )

    @once
    def distance(self) -> Tensor:
        """Position of the query minus position of the key: int64 [batch or 1, queries, keys].
        Raises ``ValueError`` if queries and keys are different tokens, as in cross-attention."""
        if self.query_documents is not None:
            raise ValueError("queries and keys are different tokens, so they have no distance")
        own = self.key_positions[:, self.offset : self.offset + self.queries, None]
        return own - self.key_positions[:, None, :]

    @once
    def dense(self) -> Tensor:
        """The mask as one tensor: bool [batch or 1, heads or 1, queries, keys]. Built once."""
        seen = torch.ones(1, 1, self.queries, self.keys, dtype=torch.bool, device=self.device)
        if self.causal:
            seen = seen.tril(diagonal=self.offset)
        if self.window is not None:
            seen = seen & window_mask(self)
        if self.segment is not None:
            seen = seen & segment_mask(self)
        if self.prefix is not None:
            seen = seen | self.prefix[:, None, None, :]
        if self.documents is not None:
            own = self.query_documents
            if own is None:
                own = self.documents[:, self.offset : self.offset + self.queries]
            seen = seen & (own[:, None, :, None] == self.documents[:, None, None, :])
        return seen

    def scores(self, dtype: torch.dtype) -> Tensor | None:
        return None if self.bias is None else self.bias.scores(self.distance).to(dtype)


def positions_of(documents: Tensor) -> Tensor:
    """Return the position of each token in its document, from 0: int64 [batch, length].
    ``documents``: [batch, length], document numbers. Each document is contiguous."""
    length = documents.shape[1]
    index = torch.arange(length, device=documents.device).expand(documents.shape)
    fresh = torch.ones_like(documents, dtype=torch.bool)
    fresh[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(fresh, index, 0).cummax(dim=1).values


@dataclass(frozen=True, kw_only=True, eq=False)
class Relation:
    """Vectors for the distances between queries and keys. ``rows``: [distances, size], a vector for
    each distance; None if each layer has its own vectors. ``index``: int64 [batch or 1, queries,
    keys], the index in ``rows`` for each pair of query and key."""

    index: Tensor
    rows: Tensor | None = None


def of_queries(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Return the dot product of q_i and rows[index_ij] for each query i and key j: [batch, heads,
    queries, keys]. ``q``: [batch, heads, queries, head_dim]. ``rows``: [heads or 1, distances,
    head_dim]."""
    scores = q @ rows.transpose(-2, -1)
    return scores.gather(-1, index[:, None].expand(*scores.shape[:2], *index.shape[1:]))


def of_keys(k: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Return the dot product of k_j and rows[index_ij] for each query i and key j: [batch, heads,
    queries, keys]. ``k``: [batch, heads, keys, head_dim]. ``rows``: [heads or 1, distances,
    head_dim]."""
    return of_queries(k, rows, index.transpose(1, 2)).transpose(2, 3)
