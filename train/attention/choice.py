"""Choose the attention back end: each device has a table of back ends, and ``auto`` takes the first
row that fits. The order of the rows follows from measurements on an H100 and an H200
(``benchmarks/attention.py``, docs/performance.md). For a plain mask cuDNN's kernel is the fastest,
our Triton kernel is next, and SDPA's FlashAttention-2 is slower from 1,024 tokens on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from llmcurate.base.errors import UsageError
from train.attention.backends import BACKENDS, has_cudnn
from train.attention.context import SharedMask
from train.attention.mask import Mask, positions_of
from train.device import generation

_PLAIN = frozenset({"causal"})
_HALF = frozenset({torch.bfloat16, torch.float16})


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a device's table: a back end, and the masks and dtypes for which ``auto`` uses it.
    ``masks``, ``dtypes``: the mask features and dtypes; None means all that the back end supports.
    ``single``: True if ``auto`` also uses it for a single query, as in generation, with any mask.
    ``on``: a function that tells if ``auto`` uses the row on a device; None means on each.
    ``least``: the smallest number of keys for which ``auto`` uses the row."""

    backend: str
    why: str
    masks: frozenset[str] | None = None
    dtypes: frozenset[torch.dtype] | None = None
    single: bool = False
    on: Callable[[torch.device], bool] | None = None
    least: int = 0

    def fits(self, q: Any, mask: Mask, values: int | None = None) -> bool:
        if self.dtypes is not None and q.dtype not in self.dtypes:
            return False
        if mask.keys < self.least or (self.on is not None and not self.on(q.device)):
            return False
        wanted = self.masks is None or mask.features <= self.masks
        if not wanted and not (self.single and mask.queries == 1):
            return False
        if self.backend in EXCLUDED:
            return False
        return BACKENDS[self.backend].refusal(q, mask, values) is None


# Back ends that failed their trial in this process (train/loop/backends.py), with the reason.
EXCLUDED: dict[str, str] = {}

_REFERENCE = Row(backend="eager", why="nothing else supports the case")
TABLE: dict[str, tuple[Row, ...]] = {
    "cuda": (
        Row(
            backend="sdpa",
            why="cuDNN's kernel is the fastest for plain masks",
            masks=_PLAIN,
            dtypes=_HALF,
            on=has_cudnn,
        ),
        Row(
            backend="triton",
            why="without cuDNN's kernel it is the fastest on this card from 1,024 tokens on",
            masks=_PLAIN,
            dtypes=_HALF,
            on=lambda device: generation(device) == 9,
            least=1_024,
        ),
        Row(
            backend="sdpa",
            why="PyTorch's FlashAttention-2 does plain masks",
            masks=_PLAIN,
            single=True,
        ),
        Row(
            backend="triton",
            why="its kernels read no block that the mask hides completely",
            dtypes=_HALF,
        ),
        Row(backend="flex", why="it skips blocks that the mask hides completely"),
        Row(backend="sdpa", why="flex does not support the case"),
        _REFERENCE,
    ),
    "cpu": (Row(backend="sdpa", why="PyTorch's kernels are the fastest on a CPU"), _REFERENCE),
}


def fix_for_compiler() -> None:
    """Tell torch.compile that functions which describe a device always return the same value."""
    for fact in (has_cudnn, generation):
        torch.compiler.assume_constant_result(fact)


def choose(q: Any, mask: Mask, values: int | None = None) -> Row:
    """Return the first row in the device's table of back ends that fits these queries and this
    mask. Only dtype, device, shape and ``requires_grad`` of ``q`` are read. ``values``: the size of
    a value vector; None: that of a query vector. Raises ``LlmcurateError`` if no row fits."""
    for row in TABLE.get(q.device.type, ()):
        if row.fits(q, mask, values):
            return row
    raise UsageError(f"no attention back end for {q.dtype} on {q.device.type}")


def check_name(backend: str) -> None:
    """Raise ``LlmcurateError`` if there is no back end of this name."""
    if backend != "auto" and backend not in BACKENDS:
        raise UsageError(f"attention {backend!r}: choose auto or one of {', '.join(BACKENDS)}")


def resolve(backend: str, q: Any, mask: Mask, values: int | None = None) -> Row:
    """Return the row (back end and reason) to use for the setting ``backend``. If the setting is
    ``auto`` or is in ``EXCLUDED`` (back ends that failed a trial), return what ``choose`` returns,
    else a row with this back end. Raises ``LlmcurateError`` if this back end does not support these
    queries and this mask."""
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
    """Return the attention of q over k and v: [batch, heads, queries, last dimension of v], in v's
    dtype.

    ``q``: [batch, heads, queries, head_dim]. ``k``, ``v``: [batch, kv_heads, keys, head_dim]; v's
    last dimension may differ. ``heads`` is a multiple of ``kv_heads``. With a ``SharedMask``, q, k
    and v have this process's tokens only. ``added``: [batch, heads, queries, keys], numbers to add
    to the scores. Raises ``LlmcurateError`` if the back end is unknown or does not support this
    mask, dtype or device."""
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
    q: Tensor,
    mask: Mask | SharedMask,
    backend: str = "auto",
    values: int | None = None,
    compiled: bool = False,
) -> None:
    """Compute what all layers share for a back end, and store it in the mask. Only shape, dtype and
    device of ``q`` are read. Call this before an activation checkpoint (a block that is computed
    again in the backward pass) runs attention, because code inside a checkpoint must not store
    anything. ``compiled``: True if blocks are compiled one by one. If True, the documents' lengths
    are not stored, because storing them would cause each block to be compiled again."""
    if isinstance(mask, SharedMask):
        for each in mask.chunks:
            prepare(q, each, backend, values, compiled)
        return
    make = BACKENDS[resolve(backend, q, mask, values).backend].prepare
    if make is not None:
        make(mask, compiled)


LENGTH = 160  # tokens: more than one block of any kernel
# Largest relative difference from the reference that rounding explains.
BOUNDS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def small_mask(like: Mask, device: torch.device) -> Mask:
    """Return a small mask to try a back end with. It has the features of ``like``, and three
    documents in ``LENGTH`` tokens. If ``like`` has keys before or after its queries, the queries of
    the result are tokens 40 to 119 only."""
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
    """Return the largest difference between a back end in ``dtype`` and ``eager`` in float32. The
    attention of random q, k and v and the gradients of all three are compared. Each difference is
    relative to the largest absolute value that ``eager`` gives. The difference is infinite if a
    value is NaN."""
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
    """Return why a back end fails a trial with these heads and dtype, or None if it passes."""
    try:
        worst = difference(name, small_mask(like, like.device), heads, kv_heads, head_dim, dtype)
    except Exception as failure:  # whatever a compiler or a driver raises
        line = next(iter(str(failure).strip().splitlines()), "")
        return f"{type(failure).__name__}: {line}"[:200]
    bound = BOUNDS[dtype]
    if worst <= bound:
        return None
    return f"its results differ from the reference by {worst:.1g} of their size; limit {bound:g}"
