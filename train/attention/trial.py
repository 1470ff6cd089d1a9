"""A back end tried once against the eager reference, on a small case of a layer's own kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from train.attention.backends import BACKENDS
from train.attention.mask import Mask, positions_of

LENGTH = 160  # tokens: more than one block of any kernel
# Largest difference, over the largest number of the reference, that rounding explains.
BOUNDS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def small(like: Mask, device: torch.device) -> Mask:
    """A mask of the same kind over a few documents of ``LENGTH`` tokens; of some of its queries
    where ``like`` has keys before or behind them.
    """
    index = torch.arange(LENGTH, device=device)
    documents = ((index >= 23).long() + (index >= 100).long())[None]
    positions = positions_of(documents)
    mask = dataclasses.replace(
        like,
        queries=LENGTH,
        keys=LENGTH,
        device=device,
        documents=None if like.documents is None else documents,
        window=None if like.window is None else min(like.window, 37),
        prefix=None if like.prefix is None else positions < 11,
        positions=positions if like.documents is not None else None,
        ahead=0,
    )
    return mask.of_queries(40, 120) if like.offset or like.ahead else mask


def difference(
    name: str, mask: Mask, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> float:
    """The largest difference of a back end from ``eager`` in float32, of the result and of the
    gradients of q, k and v, each over the largest number of eager's; infinite where one is no
    number.
    """
    draw = torch.Generator().manual_seed(0)
    sizes = ((heads, mask.queries), *[(kv_heads, mask.keys)] * 2, (heads, mask.queries))
    shapes = [(1, count, length, head_dim) for count, length in sizes]
    drawn = [torch.randn(shape, generator=draw).to(mask.device, dtype) for shape in shapes]
    *inputs, weight = drawn
    wanted = _passes(BACKENDS["eager"].attention, [x.float() for x in inputs], weight, mask)
    got = _passes(BACKENDS[name].attention, inputs, weight, mask)
    worst = 0.0
    for result, reference in zip(got, wanted, strict=True):
        share = float((result.float() - reference).abs().max() / reference.abs().max())
        worst = max(worst, share if share == share else float("inf"))
    return worst


def _passes(
    attention: Callable[[Tensor, Tensor, Tensor, Mask], Tensor],
    inputs: list[Tensor],
    weight: Tensor,
    mask: Mask,
) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    with torch.enable_grad(), torch.autocast(mask.device.type, enabled=False):
        q, k, v = leaves
        out = attention(q, k, v, mask)
        gradients = torch.autograd.grad((out.float() * weight.float()).sum(), leaves)
    return [out.detach(), *gradients]


def fault(
    name: str, like: Mask, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> str | None:
    """What is wrong with a back end for layers of this kind, or None."""
    try:
        worst = difference(name, small(like, like.device), heads, kv_heads, head_dim, dtype)
    except Exception as failure:  # whatever a compiler or a driver raises
        line = next(iter(str(failure).strip().splitlines()), "")
        return f"{type(failure).__name__}: {line}"[:200]
    bound = BOUNDS[dtype]
    if worst <= bound:
        return None
    return f"its results differ from the reference's by {worst:.1g} of their size, over {bound:g}"
