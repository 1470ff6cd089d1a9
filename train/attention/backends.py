"""One function, ``attend(q, k, v, mask)``, over several back ends.

``eager`` says what is computed and is the reference for every mask; the others must agree with it.
A back end declares the mask features, dtypes and devices it supports; ``auto`` takes the fastest
that supports the case. To add one, write its function and register it with its ``Backend``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from train.errors import TrainError


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    """Which keys a query may see.

    ``causal``: query i, at position ``offset + i``, sees keys at positions up to its own; the
    offset is the number of keys cached before the first query. ``documents``: int tensor
    [batch, keys]; a query sees only keys of its own document.
    """

    queries: int
    keys: int
    device: torch.device
    causal: bool = True
    documents: Tensor | None = None

    @property
    def offset(self) -> int:
        return self.keys - self.queries

    @property
    def features(self) -> frozenset[str]:
        """What a back end must support; causal without cached keys is the plain case."""
        names = {"causal"} if self.causal else set()
        if self.documents is not None:
            names.add("documents")
        if self.causal and self.offset:
            names.add("offset")
        return frozenset(names)

    @cached_property
    def dense(self) -> Tensor:
        """Boolean [batch or 1, 1, queries, keys]; true where a query sees a key. Built once."""
        seen = torch.ones(1, self.queries, self.keys, dtype=torch.bool, device=self.device)
        if self.causal:
            seen = seen.tril(diagonal=self.offset)
        if self.documents is not None:
            own = self.documents[:, self.offset :]
            seen = seen & (own[:, :, None] == self.documents[:, None, :])
        return seen[:, None]


Attention = Callable[[Tensor, Tensor, Tensor, Mask], Tensor]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An attention function and what it supports."""

    attention: Attention
    masks: frozenset[str]
    dtypes: frozenset[torch.dtype]
    devices: frozenset[str]

    def refusal(self, q: Tensor, mask: Mask) -> str | None:
        """Why this back end cannot do it, or None."""
        if missing := mask.features - self.masks:
            return f"the mask {', '.join(sorted(missing))}"
        if q.dtype not in self.dtypes:
            return f"the dtype {q.dtype}"
        if q.device.type not in self.devices:
            return f"the device {q.device.type}"
        return None


def _repeat_heads(kv: Tensor, heads: int) -> Tensor:
    """[batch, kv_heads, keys, head_dim] to [batch, heads, keys, head_dim], repeated in turn."""
    return kv if kv.shape[1] == heads else kv.repeat_interleave(heads // kv.shape[1], dim=1)


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v, scores and softmax in float32
    or wider (Vaswani et al. 2017)."""
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    with torch.autocast(q.device.type, enabled=False):
        exact = torch.promote_types(q.dtype, torch.float32)
        scores = (q.to(exact) @ k.to(exact).transpose(-2, -1)) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(~mask.dense, float("-inf")).softmax(dim=-1)
        return weights.to(v.dtype) @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """PyTorch's fused attention; the flash kernel where the mask is causal and nothing else."""
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    if mask.features <= {"causal"}:
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask.causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.dense)


_ALL_MASKS = frozenset({"causal", "documents", "offset"})
_FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})

# In the order in which ``auto`` tries them.
BACKENDS: dict[str, Backend] = {
    "sdpa": Backend(
        attention=sdpa, masks=_ALL_MASKS, dtypes=_FLOATS, devices=frozenset({"cpu", "cuda"})
    ),
    "eager": Backend(
        attention=eager,
        masks=_ALL_MASKS,
        dtypes=_FLOATS | {torch.float64},
        devices=frozenset({"cpu", "cuda"}),
    ),
}


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, backend: str = "auto") -> Tensor:
    """Attention of q [batch, heads, queries, head_dim] over k, v [batch, kv_heads, keys, head_dim].

    ``heads`` is a multiple of ``kv_heads``. Returns [batch, heads, queries, head_dim] in v's dtype.
    Raises ``TrainError`` where the back end is unknown or does not support the case.
    """
    if backend == "auto":
        for candidate in BACKENDS.values():
            if candidate.refusal(q, mask) is None:
                return candidate.attention(q, k, v, mask)
        raise TrainError(f"no attention back end for {q.dtype} on {q.device.type}", exit_code=2)
    if backend not in BACKENDS:
        raise TrainError(
            f"attention {backend!r}: choose auto or one of {', '.join(BACKENDS)}", exit_code=2
        )
    if refused := BACKENDS[backend].refusal(q, mask):
        raise TrainError(f"attention {backend} does not support {refused}", exit_code=2)
    return BACKENDS[backend].attention(q, k, v, mask)
