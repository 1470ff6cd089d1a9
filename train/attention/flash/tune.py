"""Choose block sizes (tiles) of kernels by trials on a GPU that op.py does not list; cache them."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress

import torch
import triton
from torch import Tensor

from llmcurate.base.disk.files import cache_folder, write_atomic
from train.attention.flash import op
from train.attention.flash.op import Tile, Tiles
from train.attention.flash.spans import spans

# Those that are first or close to it on an H100, for some kernel, mask and head_dim of 64 or 128.
CANDIDATES = (
    *(Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 32, 4, 3), Tile(32, 64, 4, 3)),
    *(Tile(32, 64, 4, 2), Tile(128, 64, 8, 3), Tile(128, 32, 8, 3)),
)
KERNELS = ("forward", "of_queries", "of_keys")


def measure(q: Tensor, documents: Tensor) -> None:
    """Choose the fastest tile of each kernel for queries like ``q``, or take it from the cache.
    ``q`` must need a gradient. ``documents``: [batch, length], the document of each token."""
    mask = spans(keys=q.shape[2], documents=documents, prefix=None, positions=None)
    key = op.padded(q.shape[-1]), q.dtype, False
    card = torch.cuda.get_device_name(q.device) if q.is_cuda else "cpu"
    name = f"{card} {key[0]} {q.dtype} {torch.__version__} {triton.__version__}.json"
    path = cache_folder() / "tiles" / name.replace("/", "-")
    with suppress(OSError, ValueError, TypeError):
        op.MEASURED[key] = Tiles(*(Tile(*sizes) for sizes in json.loads(path.read_bytes())))
        return

    def step() -> object:
        return torch.autograd.grad(op.flash_attention(q, q, q, spans=mask)[0], q, q)

    best, least = op.tiles(*key[:2], q.device, long=False), float("inf")
    for kernel in KERNELS:
        for tile in (getattr(best, kernel), *CANDIDATES):
            op.MEASURED[key] = dataclasses.replace(best, **{kernel: tile})
            with suppress(Exception):  # too much shared memory, or a compiler that gives up
                if (took := triton.testing.do_bench(step)) < least:
                    best, least = op.MEASURED[key], took
    op.MEASURED[key] = best
    chosen = [dataclasses.astuple(getattr(best, kernel)) for kernel in KERNELS]
    write_atomic(path, json.dumps(chosen).encode())
