"""Tensors split over processes (PyTorch's DTensor): gathered, split, filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

Weight = TypeVar("Weight", bound=Tensor)


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
    return split.to(parameter.device)  # that of the mesh is another where weights are offloaded


def shares(tensor: Any) -> int:
    """Over how many processes a tensor is split, or kept alike in groups of them."""
    return tensor.device_mesh.size() if hasattr(tensor, "full_tensor") else 1


def mesh_of(tensor: Any) -> Any:
    """The mesh of the processes that a tensor is split over, or None. PyTorch's operations over
    several tensors take those of one mesh.
    """
    return getattr(tensor, "device_mesh", None)


def by_mesh(tensors: Iterable[Weight]) -> list[list[Weight]]:
    """Those of each mesh together, in order."""
    groups: dict[Any, list[Weight]] = {}
    for tensor in tensors:
        groups.setdefault(mesh_of(tensor), []).append(tensor)
    return list(groups.values())


@torch.no_grad()
def clip(weights: Iterable[Tensor], most: float) -> Tensor:
    """Scale gradients down to a norm of ``most`` together; returns the norm that they had."""
    groups = by_mesh(weight for weight in weights if weight.grad is not None)
    if len(groups) < 2:
        return gather(nn.utils.clip_grad_norm_([w for own in groups for w in own], most))
    norms = [
        gather(nn.utils.get_total_norm([w.grad for w in own if w.grad is not None]))
        for own in groups
    ]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    for own in groups:
        nn.utils.clip_grads_with_norm_(own, most, norm)
    return norm


def spread(tensor: Tensor, mesh: Any, owner: int) -> None:
    """Fill ``tensor``, in all processes of a mesh, with that of ``owner``, a rank of the run: along
    one dimension of the mesh after another.
    """
    own = list(mesh.get_coordinate())
    there = (mesh.mesh == owner).nonzero()[0].tolist()
    for dim in reversed(range(mesh.ndim)):
        if own[:dim] == there[:dim]:
            group = mesh.get_group(dim)
            dist.broadcast(tensor, dist.get_global_rank(group, there[dim]), group)


@torch.no_grad()
def copy_into(parameter: Tensor, tensor: Tensor) -> None:
    """Copy a whole ``tensor`` from the CPU into a parameter, split or not."""
    parameter.copy_(split_like(tensor.to(parameter.device, parameter.dtype), parameter))


def local(tensor: Tensor) -> Tensor:
    """The part of a split tensor that this process has, sharing its memory; else the tensor."""
    data = tensor.detach()
    return data.to_local() if hasattr(data, "to_local") else data
