"""Context parallelism: the tokens of each row are divided among processes. Only attention compares
tokens with each other. The processes first gather the keys and values of whole rows. Each process
then computes the attention of its own queries to all of these keys. With grouped queries, keys and
values are much smaller than the other activations (Grattafiori et al. 2024, section 3.3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train.attention.mask import Mask, once


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextParallel:
    """The share of the tokens of a row that process ``rank`` of ``count`` in ``group`` computes.
    Each row is cut into 2 x count chunks. Process n, counted from 0, has chunk n and chunk 2 x
    count - 1 - n. One chunk is early and the other late, so that causal attention is equal work for
    all processes."""

    group: Any
    rank: int
    count: int

    def chunks(self, length: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the early and the late chunk of a row that this process computes, as [first, end).
        ``length``: the tokens of the row, a multiple of 2 x the number of processes."""
        size = length // (2 * self.count)
        starts = self.rank * size, length - (self.rank + 1) * size
        return (starts[0], starts[0] + size), (starts[1], starts[1] + size)

    def own(self, x: Tensor) -> Tensor:
        """Return the tokens of this process from x [batch, length, ...]."""
        return torch.cat([x[:, first:last] for first, last in self.chunks(x.shape[1])], dim=1)

    def gathered(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of whole rows, in order of position, given those of this
        process's tokens. All processes must call this. Shapes are [batch, heads, tokens, head_dim].
        Gradients are summed over the processes."""
        both: Tensor = _Gather.apply(torch.cat((k, v), dim=-1), self)
        k, v = both.split((k.shape[-1], v.shape[-1]), dim=-1)
        return k, v


class _Gather(torch.autograd.Function):
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
    """The mask of whole rows, ``rows``, whose tokens are divided among processes."""

    parallel: ContextParallel
    rows: Mask

    @once
    def chunks(self) -> tuple[Mask, Mask]:
        """The masks for the queries of this process, which computes two chunks of each row
        (``ContextParallel``): a mask per chunk. They are built once."""
        early, late = self.parallel.chunks(self.rows.queries)
        return self.rows.of_queries(*early), self.rows.of_queries(*late)
