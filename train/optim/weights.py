"""Work on weights that may be split over processes, and their moving average."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from train.split import gather, local, mesh_of, split_like, spread


def mapped(work: Callable[[Tensor], Tensor], tensors: list[Tensor]) -> Iterator[Tensor]:
    """``work`` over whole matrices [n, rows, columns], of tensors of one shape; each result split
    as its tensor is. Where these are split over processes, each works on its part of them and sends
    the results, so that all together do what one would.
    """
    mesh = mesh_of(tensors[0])
    if mesh is None:
        yield from work(torch.stack(tensors))
        return
    ranks, here = mesh.mesh.flatten().tolist(), mesh.get_rank()
    size = -(-len(tensors) // len(ranks))
    own = None
    for turn, rank in enumerate(ranks):  # a gathering is a turn of all
        part = [gather(tensor) for tensor in tensors[turn * size : (turn + 1) * size]]
        if rank == here and part:
            own = work(torch.stack(part))
    for number, tensor in enumerate(tensors):
        rank = ranks[number // size]
        if rank == here:
            assert own is not None
            whole = own[number % size].contiguous()
        else:
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        spread(whole, mesh, rank)
        yield split_like(whole, tensor)


class Average:
    """An exponential moving average of the weights: it is scored, sampled from and exported.

    It moves after every step towards the weights by 1 - decay. ``decay`` is smaller at first,
    (1 + step) / (10 + step), or the first weights would weigh for long.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.model = decay, model
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self.model.named_parameters():
            local(self.weights[name]).lerp_(local(parameter), 1 - decay)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The model with the average in place of its weights."""
        kept = {name: local(p).clone() for name, p in self.model.named_parameters()}
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                local(parameter).copy_(local(self.weights[name]))
            try:
                yield
            finally:
                for name, parameter in self.model.named_parameters():
                    local(parameter).copy_(kept[name])
