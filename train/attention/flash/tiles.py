"""Block sizes by head_dim and GPU. Fixed, not tuned at run time: other blocks add up in another
order, and then a run's bits would depend on a clock. ``benchmarks/attention.py --tune`` tries
others; what it finds goes here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Tile:
    """Queries and keys of a block, warps of a program, depth of the software pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Tiles:
    """The tiles of the three kernels that multiply matrices."""

    forward: Tile
    of_queries: Tile
    of_keys: Tile


# By head_dim, padded to a power of two. Not measured: what fits the shared memory and registers
# (228 KiB an SM on Hopper) in the shapes that FlashAttention-3 (hopper/tile_size.h) and Triton's
# tutorial use.
HOPPER: dict[int, Tiles] = {
    64: Tiles(Tile(128, 128, 8, 3), Tile(128, 64, 8, 3), Tile(64, 128, 8, 3)),
    128: Tiles(Tile(128, 128, 8, 2), Tile(128, 64, 8, 2), Tile(64, 128, 8, 2)),
    256: Tiles(Tile(128, 64, 8, 2), Tile(64, 64, 8, 2), Tile(64, 64, 8, 2)),
}
# Ampere and later with 99 KiB a block, which consumer cards have.
OTHER: dict[int, Tiles] = {
    64: Tiles(Tile(128, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 64, 4, 2)),
    128: Tiles(Tile(128, 32, 4, 2), Tile(64, 32, 4, 2), Tile(32, 64, 4, 2)),
    256: Tiles(Tile(64, 32, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1)),
}
_SMALL = Tile(16, 16, 1, 1)
# For the interpreter, and for float32 on a GPU, whose exact products use no tensor cores.
SMALL = Tiles(_SMALL, _SMALL, _SMALL)
SINGLE = Tiles(Tile(32, 32, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1))


def padded(head_dim: int) -> int:
    """The power of two that a kernel computes with; 16 is the least that a product takes."""
    return max(16, 1 << (head_dim - 1).bit_length())


def tiles(head_dim: int, dtype: torch.dtype, device: torch.device) -> Tiles:
    """The tiles for a head_dim of up to 256."""
    if device.type != "cuda":
        return SMALL
    if dtype == torch.float32:
        return SINGLE if padded(head_dim) <= 128 else SMALL
    table = HOPPER if _major(device) == 9 else OTHER
    return table[max(64, padded(head_dim))]


@cache
def _major(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]
