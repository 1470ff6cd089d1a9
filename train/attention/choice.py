"""The choice of a back end: of one table a device, ``auto`` takes the first row that fits.

A row's order is a claim about speed, measured on an H200 (``benchmarks/attention.py``). For a plain
mask SDPA takes its cuDNN kernel there, which is ahead of ours; its flash kernel is slower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from llmcurate.base.errors import UsageError
from train.attention.backends import BACKENDS
from train.attention.context import SharedMask
from train.attention.mask import Mask

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
