"""Tensors divided among processes (PyTorch's DTensor): gather, split, fill."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def gather(tensor: Tensor) -> Tensor:
    """Return the whole tensor on every process. If ``tensor`` is not split, this is ``tensor``.
    Optimisers that need a whole matrix (its rows, its singular values) gather the gradient of a
    split weight. Each process then computes the same update and keeps its part.
    """
    full_tensor: Any = getattr(tensor, "full_tensor", None)
    return tensor if full_tensor is None else full_tensor()


def split_like(tensor: Tensor, parameter: Any) -> Tensor:
    """Split ``tensor``, which is whole and equal on every process, as ``parameter`` is split."""
    if not hasattr(parameter, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    everywhere = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    split: Tensor = everywhere.redistribute(mesh, parameter.placements)
    return split.to(parameter.device)  # offloaded weights are on another device than the mesh


def shares(tensor: Any) -> int:
    """Return the number of processes in the tensor's mesh; 1 for a plain tensor."""
    return tensor.device_mesh.size() if hasattr(tensor, "full_tensor") else 1


def mesh_of(tensor: Any) -> Any:
    """Return the mesh of the processes that a tensor is split over, or None if it is whole.
    PyTorch's operations on several tensors need all of them on one mesh.
    """
    return getattr(tensor, "device_mesh", None)


@torch.no_grad()
def clip(weights: Iterable[Tensor], most: float) -> Tensor:
    """Scale all gradients down to a total norm of at most ``most``. Returns the norm before."""
    by_mesh: dict[Any, list[Tensor]] = {}
    for weight in (weight for weight in weights if weight.grad is not None):
        by_mesh.setdefault(mesh_of(weight), []).append(weight)
    if len(by_mesh) < 2:
        return gather(nn.utils.clip_grad_norm_([w for own in by_mesh.values() for w in own], most))
    norms = [
        gather(nn.utils.get_total_norm([w.grad for w in own if w.grad is not None]))
        for own in by_mesh.values()
    ]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    for own in by_mesh.values():
        nn.utils.clip_grads_with_norm_(own, most, norm)
    return norm


def spread(tensor: Tensor, mesh: Any, owner: int) -> None:
    """Fill ``tensor`` on all processes of a mesh with its values on process ``owner``, a rank of
    the run. The tensor is broadcast along one dimension of the mesh after another."""
    own = list(mesh.get_coordinate())
    target = (mesh.mesh == owner).nonzero()[0].tolist()
    for dim in reversed(range(mesh.ndim)):
        if own[:dim] == target[:dim]:
            group = mesh.get_group(dim)
            dist.broadcast(tensor, dist.get_global_rank(group, target[dim]), group)


@torch.no_grad()
def copy_into(parameter: Tensor, tensor: Tensor) -> None:
    """Copy a whole ``tensor`` from the CPU into a parameter, which may be split."""
    parameter.copy_(split_like(tensor.to(parameter.device, parameter.dtype), parameter))


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a split tensor, in the same memory, or the plain tensor."""
    data = tensor.detach()
    return data.to_local() if hasattr(data, "to_local") else data
