"""Tensors split over processes (PyTorch's DTensor): gathered, split, filled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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


@torch.no_grad()
def copy_into(parameter: Tensor, tensor: Tensor) -> None:
    """Copy a whole ``tensor`` from the CPU into a parameter, split or not."""
    parameter.copy_(split_like(tensor.to(parameter.device, parameter.dtype), parameter))


def local(tensor: Tensor) -> Tensor:
    """The part of a split tensor that this process has, sharing its memory; else the tensor."""
    data = tensor.detach()
    return data.to_local() if hasattr(data, "to_local") else data
