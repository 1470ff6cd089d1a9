"""The back end ``triton`` of ``attend``."""

from __future__ import annotations

import importlib.util

from torch import Tensor

from train.attention.mask import Alibi, Mask

INSTALLED: bool = importlib.util.find_spec("triton") is not None


def refusal(q: Tensor, mask: Mask) -> str | None:
    """Why it cannot run here, or None."""
    if not INSTALLED:
        return "this machine: triton is not installed (pip install 'llmcurate[gpu]')"
    from train.attention.flash import op

    return op.refusal(q)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    from train.attention.flash.op import flash_attention

    slopes = mask.bias.slopes if isinstance(mask.bias, Alibi) else None
    out, _ = flash_attention(
        q,
        k.to(q.dtype),
        v.to(q.dtype),
        causal=mask.causal,
        window=mask.window,
        sinks=mask.sinks,
        slopes=slopes,
        spans=mask.spans,
    )
    return out.to(v.dtype)
