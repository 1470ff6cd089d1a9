"""How one of their tensors holds one or more of ours; each layout undoes itself bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from train.model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Layout:
    """``pack``: ours to theirs; ``unpack``: theirs to ours."""

    pack: Callable[[Sequence[Tensor]], Tensor]
    unpack: Callable[[Tensor], Sequence[Tensor]]


PLAIN = Layout(pack=lambda ours: ours[0], unpack=lambda theirs: [theirs])


def plain(config: ModelConfig) -> Layout:
    """[outputs, inputs], as torch.nn.Linear keeps it."""
    return PLAIN


def conv1d(config: ModelConfig) -> Layout:
    """GPT-2's Conv1D keeps a matrix as [inputs, outputs]."""
    return _conv1d(1)


def conv1d_qkv(config: ModelConfig) -> Layout:
    """GPT-2's query, key and value side by side: [inputs, 3 x outputs]."""
    return _conv1d(3)


def _conv1d(pieces: int) -> Layout:
    def pack(ours: Sequence[Tensor]) -> Tensor:
        joined = torch.cat(list(ours))
        return joined.T if joined.dim() == 2 else joined

    def unpack(theirs: Tensor) -> Sequence[Tensor]:
        joined = theirs.T if theirs.dim() == 2 else theirs
        return joined.chunk(pieces)

    return Layout(pack=pack, unpack=unpack)


def by_head(config: ModelConfig) -> Layout:
    """GPT-NeoX and BLOOM: the rows of head 0's query, key and value, then those of head 1, ..."""

    def pack(ours: Sequence[Tensor]) -> Tensor:
        heads = [tensor.unflatten(0, (config.heads, config.head_dim)) for tensor in ours]
        return torch.stack(heads, dim=1).flatten(0, 2)

    def unpack(theirs: Tensor) -> Sequence[Tensor]:
        heads = theirs.unflatten(0, (config.heads, 3, config.head_dim))
        return [heads[:, index].flatten(0, 1) for index in range(3)]

    return Layout(pack=pack, unpack=unpack)


def interleaved(config: ModelConfig) -> Layout:
    """GPT-J rotates dimension 2 i with 2 i + 1, ours i with i + rotated / 2: the rows of queries
    and keys change places within each head.
    """
    pairs, rotated = config.rotated // 2, config.rotated
    order = torch.arange(config.head_dim)
    order[:rotated] = torch.stack((order[:pairs], order[pairs:rotated]), dim=1).flatten()
    back = order.argsort()

    def move(tensor: Tensor, order: Tensor) -> Tensor:
        heads = tensor.unflatten(0, (config.heads, config.head_dim))
        return heads.index_select(1, order.to(tensor.device)).flatten(0, 1)

    return Layout(
        pack=lambda ours: move(ours[0], order), unpack=lambda theirs: [move(theirs, back)]
    )
