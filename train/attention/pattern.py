"""Which keys a window and what goes with it let queries see, where that is more than one interval:
dilated windows and global tokens (Longformer, Beltagy et al. 2020, section 3.1), windows of blocks
and random blocks (BigBird, Zaheer et al. 2020, section 2), segments (Transformer-XL, Dai et al.
2019, section 3.2).
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from train.attention.flash.spans import bounds

if TYPE_CHECKING:
    from train.attention.mask import Mask


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
