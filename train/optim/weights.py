"""Weights that may be split over processes: gathered, filled, and their moving average."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def gather(tensor: Tensor) -> Tensor:
    """The tensor itself, or all parts of a split one, on every process.

    An optimiser that looks at a matrix as a whole (its rows, its singular values) gathers the
    gradient of a split weight; each process computes the same update and keeps its part.
    """
    full_tensor: Any = getattr(tensor, "full_tensor", None)
    return tensor if full_tensor is None else full_tensor()


def split_like(tensor: Tensor, parameter: Any) -> Tensor:
    """A whole ``tensor``, equal on every process, split as ``parameter`` is."""
    if not hasattr(parameter, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    everywhere = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    split: Tensor = everywhere.redistribute(mesh, parameter.placements)
    return split


def shares(tensor: Any) -> int:
    """Over how many processes a tensor is split."""
    return tensor.device_mesh.size() if hasattr(tensor, "full_tensor") else 1


def mapped(work: Callable[[Tensor], Tensor], tensors: list[Tensor]) -> Iterator[Tensor]:
    """``work`` over whole matrices [n, rows, columns], of tensors of one shape; each result split
    as its tensor is. Where these are split over processes, each works on its part of them and sends
    the results, so that all together do what one would.
    """
    count = shares(tensors[0])
    if count == 1:
        yield from work(torch.stack(tensors))
        return
    import torch.distributed as dist

    size = -(-len(tensors) // count)
    own = None
    for rank in range(count):  # a gathering is a turn of all
        part = [gather(tensor) for tensor in tensors[rank * size : (rank + 1) * size]]
        if rank == dist.get_rank() and part:
            own = work(torch.stack(part))
    for number, tensor in enumerate(tensors):
        rank = number // size
        if rank == dist.get_rank():
            assert own is not None
            whole = own[number - rank * size].contiguous()
        else:
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        dist.broadcast(whole, rank)
        yield split_like(whole, tensor)


@torch.no_grad()
def copy_into(parameter: Tensor, tensor: Tensor) -> None:
    """Copy a whole ``tensor`` from the CPU into a parameter, split or not."""
    parameter.copy_(split_like(tensor.to(parameter.device, parameter.dtype), parameter))


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
            _local(self.weights[name]).lerp_(_local(parameter), 1 - decay)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The model with the average in place of its weights."""
        kept = {name: _local(p).clone() for name, p in self.model.named_parameters()}
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                _local(parameter).copy_(_local(self.weights[name]))
            try:
                yield
            finally:
                for name, parameter in self.model.named_parameters():
                    _local(parameter).copy_(kept[name])

    def dump(self) -> dict[str, Tensor]:
        """Whole tensors. Of split weights every process must ask."""
        return {name: gather(value) for name, value in self.weights.items()}

    def load(self, weights: dict[str, Tensor]) -> None:
        for name, value in self.weights.items():
            copy_into(value, weights[name])


def _local(tensor: Tensor) -> Tensor:
    """The part of a split tensor that this process has, sharing its memory; else the tensor."""
    data = tensor.detach()
    return data.to_local() if hasattr(data, "to_local") else data
