"""The mask: the keys that a query may see, and what is added to their scores."""

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


def near(mask: Mask) -> Tensor:
    """Bool [batch or 1, heads or 1, queries, keys], of a mask with a window; but for documents,
    prefix and causality.
    """
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
        seen = seen | _drawn(mask, own, keys)
    return seen


def in_segments(mask: Mask) -> Tensor:
    """Bool [batch or 1, 1, queries, keys], of a mask with segments; but for documents and
    causality.
    """
    assert mask.segment is not None
    segments = mask.key_positions // mask.segment
    own = segments[:, None, mask.offset : mask.offset + mask.queries, None]
    back = own - segments[:, None, None, :]
    if not mask.memory:
        return back <= 1
    return back == (torch.arange(mask.keys, device=mask.device) < mask.offset).long()


def _drawn(mask: Mask, own: Tensor, keys: Tensor) -> Tensor:
    """Whether a key is in one of the random blocks of the query's block."""
    most = -(-mask.keys // mask.block)
    if mask.documents is None:
        blocks = torch.full_like(own, most)
    else:
        starts, ends = bounds(mask.documents)
        counts = -(-(ends - starts) // mask.block)
        blocks = counts[:, None, mask.offset : mask.offset + mask.queries, None].long()
    table = drawn_blocks(most, mask.window, mask.globals, mask.random, mask.draw)
    chosen = table.to(mask.device)[blocks, own.expand(blocks.shape)]  # [..., queries, 1, random]
    return (chosen == keys[..., None]).any(dim=-1)


@lru_cache(maxsize=64)
def drawn_blocks(most: int, window: int, first: int, count: int, draw: int) -> Tensor:
    """The random blocks of each block, in documents of up to ``most`` blocks: int64 [most + 1,
    most, count], by the document's number of blocks and the block. They are ``count`` different
    ones out of those that are neither in the window nor among the ``first``, or as many as there
    are; -1 stands for none. The same document has the same in rows of any length.
    """
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
    """``functools.cached_property`` without the lock it had before Python 3.12, at which
    ``torch.compile`` breaks its graph.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Value:
        if owner is None:  # asked of the class
            return self  # type: ignore[return-value]
        value = self.make(owner)
        object.__setattr__(owner, self.name, value)
        return value


class Bias(Protocol):
    """What is added to the scores. A form without a name in ``FORMS``, such as one of a user's own,
    goes to the back ends that add its ``scores``.
    """

    def scores(self, distance: Tensor) -> Tensor:
        """[batch or 1, queries, keys] to [batch or 1, heads, queries, keys]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Alibi:
    """Minus the distance, either way, times the head's slope (Press et al. 2022). ``slopes``:
    [heads].
    """

    slopes: Tensor

    def scores(self, distance: Tensor) -> Tensor:
        slopes = self.slopes.to(distance.device)
        return -slopes[:, None, None] * distance[:, None].abs().to(slopes.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Relative:
    """A learned number for each bucket of distances (Raffel et al. 2020).

    ``weight``: [buckets, heads]. Half of the buckets are single distances, the others grow with
    the logarithm up to ``distance``; all that is farther shares the last. ``both_ways``: keys after
    the query have the second half of the buckets, else they count as distance 0.
    """

    weight: Tensor
    distance: int
    both_ways: bool = False

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance, which is negative for keys after the query."""
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


# By the class alone: back ends with formulas of their own do not know what a subclass changes.
FORMS: dict[type, str] = {Alibi: "alibi", Relative: "relative"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    """The queries are the last ``queries`` of the ``keys`` in a row, but for ``ahead`` keys that
    follow them.

    ``causal``: a query sees the keys up to its own. ``documents``: int [batch, keys]; a query sees
    only keys of its own document, which is that of the key at its place, or is in
    ``query_documents``, [batch, queries], where queries are other tokens than the keys.
    ``window``: a query sees keys less than that far away, to either side.
    ``sinks``: keys at the first positions of a document are seen past the window. With the window
    go, of an encoder, ``globals``, first tokens of a document that see and are seen by all of it;
    ``random`` more keys that each query sees, which follow from ``draw``; and ``block``, the tokens
    that window, globals and random count in. ``dilations``: of each head, the step from key to key
    of its window, which reaches so many times further. ``prefix``:
    bool [batch, keys]; these keys are seen by all queries of their document, whatever else says
    no. ``positions``: int [batch or 1, keys], the position of each key in its document, for window,
    sinks and bias; counted from the row's start where absent. ``bias`` is added to the scores.
    ``segment``: a query sees keys of its segment of its document, so many tokens, and of the one
    before. With ``memory`` all keys come twice: queries see those of the segment before among the
    first half, their own segment's among the second.
    ``gaps``: a cache has left out keys, so positions may leap within a document. ``content``: each
    layer adds scores of its own, which it hands to ``attend``.
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
    ahead: int = 0

    @property
    def offset(self) -> int:
        """Keys before the first query: those a cache holds, or another process has made."""
        return self.keys - self.queries - self.ahead

    @property
    def features(self) -> frozenset[str]:
        """What a back end must support; causal without cached keys is the plain case."""
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
        if self.ahead:
            names.add("ahead")
        return frozenset(names)

    def of_queries(self, first: int, last: int) -> Mask:
        """Of the queries ``first`` to ``last`` alone, where each key has its query. Keys behind
        them that none of them sees are left out.
        """
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
        """``positions``, counted where they were not given: int64 [batch or 1, keys]."""
        if self.positions is not None:
            return self.positions
        return torch.arange(self.keys, device=self.device)[None]

    @once
    def spans(self) -> Spans:
        """What the Triton kernels read in place of a mask of queries x keys. Built once."""
        return spans(
            keys=self.keys,
            documents=self.documents,
            prefix=self.prefix,
            positions=self.key_positions if self.sinks else None,
        )

    @once
    def distance(self) -> Tensor:
        """How far back each key is: int64 [batch or 1, queries, keys]; negative ahead. Of queries
        that are other tokens there is none.
        """
        if self.query_documents is not None:
            raise ValueError("queries that are other tokens than the keys have no distance to them")
        own = self.key_positions[:, self.offset : self.offset + self.queries, None]
        return own - self.key_positions[:, None, :]

    @once
    def dense(self) -> Tensor:
        """Boolean [batch or 1, heads or 1, queries, keys]; true where a query sees a key. Built
        once.
        """
        seen = torch.ones(1, 1, self.queries, self.keys, dtype=torch.bool, device=self.device)
        if self.causal:
            seen = seen.tril(diagonal=self.offset)
        if self.window is not None:
            seen = seen & near(self)
        if self.segment is not None:
            seen = seen & in_segments(self)
        if self.prefix is not None:
            seen = seen | self.prefix[:, None, None, :]
        if self.documents is not None:
            own = self.query_documents
            if own is None:
                own = self.documents[:, self.offset : self.offset + self.queries]
            seen = seen & (own[:, None, :, None] == self.documents[:, None, None, :])
        return seen

    def scores(self, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores: [batch or 1, heads, queries, keys], or None."""
        return None if self.bias is None else self.bias.scores(self.distance).to(dtype)


def positions_of(documents: Tensor) -> Tensor:
    """The position of each token in its document, counted within the row, for documents
    [batch, length] that lie one after another: int64 [batch, length].
    """
    length = documents.shape[1]
    index = torch.arange(length, device=documents.device).expand(documents.shape)
    fresh = torch.ones_like(documents, dtype=torch.bool)
    fresh[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(fresh, index, 0).cummax(dim=1).values


@dataclass(frozen=True, kw_only=True, eq=False)
class Relation:
    """``index`` int64 [batch or 1, queries, keys]: the row of each pair of query and key; ``rows``
    [distances, size]: a vector for each distance, the same for all layers, or None where each layer
    has its own.
    """

    index: Tensor
    rows: Tensor | None = None


def of_queries(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """q_i . rows[index_ij]: q [batch, heads, queries, head_dim] and rows [heads or 1, distances,
    head_dim] to [batch, heads, queries, keys].
    """
    scores = q @ rows.transpose(-2, -1)
    return scores.gather(-1, index[:, None].expand(*scores.shape[:2], *index.shape[1:]))


def of_keys(k: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """k_j . rows[index_ij]: k [batch, heads, keys, head_dim] and rows [heads or 1, distances,
    head_dim] to [batch, heads, queries, keys].
    """
    return of_queries(k, rows, index.transpose(1, 2)).transpose(2, 3)
