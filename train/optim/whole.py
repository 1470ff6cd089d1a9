"""Weights that are split over several processes, whole for a moment.

Optimisers that look at a matrix as a whole (its rows, its singular values) gather its gradient, and
each process computes the same update and keeps its part.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all parts of a split one, on every process."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def like(tensor: Tensor, parameter: Any) -> Tensor:
    """A whole ``tensor``, equal on every process, split as ``parameter`` is."""
    if not hasattr(parameter, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    everywhere = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    split: Tensor = everywhere.redistribute(mesh, parameter.placements)
    return split


@torch.no_grad()
def fill(parameter: Tensor, tensor: Tensor) -> None:
    """Copy a whole ``tensor`` from the CPU into a parameter, split or not."""
    parameter.copy_(like(tensor.to(parameter.device, parameter.dtype), parameter))
