"""The choice of a back end: of one table a device, ``auto`` takes the first row that fits.

A row's order is a claim about speed, measured on an H200 (``benchmarks/attention.py``). For a plain
mask SDPA takes its cuDNN kernel there, which is ahead of ours; its flash kernel is slower."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from llmcurate.base.errors import UsageError
from train.attention.backends import BACKENDS
from train.attention.context import SharedMask
from train.attention.mask import Mask, positions_of

_PLAIN = frozenset({"causal"})
_HALF = frozenset({torch.bfloat16, torch.float16})


@dataclass(frozen=True, kw_only=True)
class Row:
    """A back end, the masks and dtypes it is taken for (None: all it supports), and why.
    ``single``: taken for any mask where there is one query, as in generation.
    """

    backend: str
    why: str
    masks: frozenset[str] | None = None
    dtypes: frozenset[torch.dtype] | None = None
    single: bool = False

    def fits(self, q: Any, mask: Mask, values: int | None = None) -> bool:
        if self.dtypes is not None and q.dtype not in self.dtypes:
            return False
        wanted = self.masks is None or mask.features <= self.masks
        if not wanted and not (self.single and mask.queries == 1):
            return False
        if self.backend in EXCLUDED:
            return False
        return BACKENDS[self.backend].refusal(q, mask, values) is None


# Back ends that failed their trial (trial.py) in this process, and how.
EXCLUDED: dict[str, str] = {}

_REFERENCE = Row(backend="eager", why="nothing else supports the case")
TABLE: dict[str, tuple[Row, ...]] = {
    "cuda": (
        Row(
            backend="sdpa",
            why="PyTorch's flash kernels do plain attention",
            masks=_PLAIN,
            single=True,
        ),
        Row(
            backend="triton",
            why="its kernels read no block that the mask empties",
            dtypes=_HALF,
        ),
        Row(backend="flex", why="it skips blocks that the mask empties"),
        Row(backend="sdpa", why="flex cannot do it"),
        _REFERENCE,
    ),
    "cpu": (Row(backend="sdpa", why="PyTorch's kernels are the fastest on a CPU"), _REFERENCE),
}


def choose(q: Any, mask: Mask, values: int | None = None) -> Row:
    """The row that ``auto`` takes for q, of which dtype, device, shape and ``requires_grad`` are
    looked at, for a mask, whose bias may learn, and for values of so many dimensions, or as many as
    q's. Raises ``LlmcurateError`` where none fits.
    """
    for row in TABLE.get(q.device.type, ()):
        if row.fits(q, mask, values):
            return row
    raise UsageError(f"no attention back end for {q.dtype} on {q.device.type}")


def check_name(backend: str) -> None:
    """Raise ``LlmcurateError`` where there is no such back end."""
    if backend != "auto" and backend not in BACKENDS:
        raise UsageError(f"attention {backend!r}: choose auto or one of {', '.join(BACKENDS)}")


def resolve(backend: str, q: Any, mask: Mask, values: int | None = None) -> Row:
    """What ``backend`` means for a case; raises ``LlmcurateError`` where it cannot do it."""
    check_name(backend)
    if backend == "auto" or backend in EXCLUDED:
        return choose(q, mask, values)
    if refused := BACKENDS[backend].refusal(q, mask, values):
        other = choose(q, mask, values).backend
        raise UsageError(f"attention {backend} does not support {refused}; auto takes {other}")
    return Row(backend=backend, why="as asked")


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | SharedMask,
    backend: str = "auto",
    added: Tensor | None = None,
) -> Tensor:
    """Attention of q [batch, heads, queries, head_dim] over k, v [batch, kv_heads, keys, head_dim].

    ``heads`` is a multiple of ``kv_heads``; the last dimension of v may be another. Returns [batch,
    heads, queries, v's last] in v's dtype.
    With a ``SharedMask`` all three are those of this process's tokens. ``added``: [batch, heads,
    queries, keys], what a layer adds to the scores, with any mask as with one of ``content``.
    Raises ``LlmcurateError`` where the back end is unknown or does not support the case.
    """
    if isinstance(mask, SharedMask):
        assert added is None
        k, v = mask.parallel.gathered(k, v)
        mixed = [
            attend(queries, k[:, :, : each.keys], v[:, :, : each.keys], each, backend)
            for queries, each in zip(q.chunk(2, dim=2), mask.chunks, strict=True)
        ]
        return torch.cat(mixed, dim=2)
    if added is not None and not mask.content:
        mask = replace(mask, content=True)
    kernel = BACKENDS[resolve(backend, q, mask, v.shape[-1]).backend].attention
    return kernel(q, k, v, mask) if added is None else kernel(q, k, v, mask, added)


def prepare(
    q: Tensor, mask: Mask | SharedMask, backend: str = "auto", values: int | None = None
) -> None:
    """Make what the back end keeps with a mask for all layers; of q nothing is read but its kind.
    Whoever attends inside a checkpoint calls this before: made there, it would be a side effect.
    """
    if isinstance(mask, SharedMask):
        for each in mask.chunks:
            prepare(q, each, backend, values)
        return
    make = BACKENDS[resolve(backend, q, mask, values).backend].prepare
    if make is not None:
        make(mask)


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
