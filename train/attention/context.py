"""Context parallel: the tokens of each row shared out over processes.

Everything but attention works token by token, so a process needs its own tokens alone. In attention
its queries look at the keys of whole rows, which the processes gather before: with grouped queries
keys and values are far smaller than the rest (Grattafiori et al. 2024, section 3.3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train.attention.mask import Mask, once


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextParallel:
    """This process, number ``rank`` of the ``count`` in ``group`` that have the same rows. A row is
    cut into 2 x count chunks, and process n has chunk n and the n-th from the end: an early one and
    a late one, so that causal attention is the same work for all.
    """

    group: Any
    rank: int
    count: int

    def chunks(self, length: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """First and one past the last token of this process's two chunks of a row, whose length
        2 x count divides.
        """
        size = length // (2 * self.count)
        starts = self.rank * size, length - (self.rank + 1) * size
        return (starts[0], starts[0] + size), (starts[1], starts[1] + size)

    def own(self, x: Tensor) -> Tensor:
        """This process's tokens of x [batch, length, ...]."""
        return torch.cat([x[:, first:last] for first, last in self.chunks(x.shape[1])], dim=1)

    def gathered(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of whole rows, in order, from those of each process's tokens, [batch,
        heads, tokens, head_dim]. Their gradients are added up over the processes.
        """
        both: Tensor = _Gather.apply(torch.cat((k, v), dim=-1), self)
        k, v = both.split((k.shape[-1], v.shape[-1]), dim=-1)
        return k, v


class _Gather(torch.autograd.Function):
    """[batch, heads, tokens, size] of each process to those of whole rows."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, parallel: ContextParallel) -> Tensor:
        ctx.parallel = parallel
        pieces = [own.new_empty(own.shape) for _ in range(parallel.count)]
        dist.all_gather(pieces, own.contiguous(), group=parallel.group)
        halves = [piece.chunk(2, dim=2) for piece in pieces]
        return torch.cat(
            [early for early, _ in halves] + [late for _, late in reversed(halves)], dim=2
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        parallel: ContextParallel = ctx.parallel
        chunks = grad.chunk(2 * parallel.count, dim=2)
        pairs = [(chunks[n], chunks[-1 - n]) for n in range(parallel.count)]
        pieces = [torch.cat(pair, dim=2).contiguous() for pair in pairs]
        own = torch.empty_like(pieces[0])
        dist.reduce_scatter(own, pieces, group=parallel.group)
        return own, None


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedMask:
    """The mask of whole rows whose tokens are shared out, and of it what this process needs."""

    parallel: ContextParallel
    rows: Mask

    @once
    def chunks(self) -> tuple[Mask, Mask]:
        """The masks of the queries of this process's two chunks. Built once."""
        early, late = self.parallel.chunks(self.rows.queries)
        return self.rows.of_queries(*early), self.rows.of_queries(*late)
