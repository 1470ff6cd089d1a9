"""The back ends of ``attend``.

``eager`` says what is computed and is the reference for every mask; the others must agree with it.
A back end declares the mask features, dtypes and devices it supports. To add one, write its
function and register it with its ``Backend``; choice.py says when ``auto`` takes it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from train.attention.mask import Alibi, Mask

TRITON_INSTALLED: bool = importlib.util.find_spec("triton") is not None

SHORTEST = 32  # tokens a document, on average: below, calls cost more than they save

Lengths = tuple[tuple[int, ...], ...]


def lengths_of(mask: Mask) -> Lengths | None:
    """Of each row the lengths of its documents, where attention can go document by document: on a
    CPU, causal and nothing else, and not while the step is traced. Looked at once a mask.
    """
    documents = mask.documents
    if (
        documents is None
        or mask.features != {"causal", "documents"}
        or type(documents) is not Tensor  # a tensor without storage cannot be looked at
        or documents.device.type != "cpu"
        or torch.compiler.is_compiling()
    ):
        return None
    if "_lengths" not in mask.__dict__:
        mask.__dict__["_lengths"] = _lengths(documents)
    lengths: Lengths | None = mask.__dict__["_lengths"]
    return lengths


def _lengths(documents: Tensor) -> Lengths | None:
    rows, length = documents.shape
    lengths = []
    for row in documents:
        fresh = (torch.nonzero(row[1:] != row[:-1])[:, 0] + 1).tolist()
        if len(fresh) + 1 != len(torch.unique(row)):
            return None  # an id that comes again is one document to a mask
        lengths.append(tuple(b - a for a, b in pairwise([0, *fresh, length])))
    return tuple(lengths) if sum(map(len, lengths)) * SHORTEST <= rows * length else None


def by_document(q: Tensor, k: Tensor, v: Tensor, lengths: Lengths) -> Tensor:
    """Causal attention within each document; q, k, v [batch, heads, length, head_dim].

    A mask over the whole row would cost all its pairs of queries and keys. The plain causal kernel
    costs those within the documents.
    """
    if all(len(sizes) == 1 for sizes in lengths):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rows = []
    for sizes, *row in zip(lengths, q, k, v, strict=True):
        parts = zip(*(x[None].split(sizes, dim=2) for x in row), strict=True)
        out = [F.scaled_dot_product_attention(a, b, c, is_causal=True) for a, b, c in parts]
        # The kernel's own order in memory, heads inside, which is that of the next product.
        rows.append(torch.cat([piece.transpose(1, 2) for piece in out], dim=1))
    return torch.cat(rows).transpose(1, 2)


Attention = Callable[..., Tensor]  # of q, k, v, mask, and with "content" scores that are added


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An attention function and what it supports."""

    attention: Attention
    masks: frozenset[str]
    dtypes: frozenset[torch.dtype]
    devices: frozenset[str]
    # Whether values may have other dimensions than queries and keys.
    values: bool = True
    # Where it has no backward pass.
    forward_only: frozenset[str] = frozenset()
    # What else it refuses, and why.
    also: Callable[[Tensor, Mask], str | None] | None = None
    # Makes what it keeps with a mask for all layers.
    prepare: Callable[[Mask], object] | None = None

    def refusal(self, q: Tensor, mask: Mask, values: int | None = None) -> str | None:
        """Why this back end cannot do it, or None. ``values``: dimensions of a value, where they
        may be others than a query's.
        """
        if not self.values and values not in (None, q.shape[-1]):
            return f"values of {values} dimensions with keys of {q.shape[-1]}"
        if missing := mask.features - self.masks:
            return f"the mask {', '.join(sorted(missing))}"
        if q.dtype not in self.dtypes:
            return f"the dtype {q.dtype}"
        if q.device.type not in self.devices:
            return f"the device {q.device.type}"
        if q.device.type in self.forward_only and q.requires_grad and torch.is_grad_enabled():
            return f"gradients on the device {q.device.type}"
        return None if self.also is None else self.also(q, mask)


def _repeat_heads(kv: Tensor, heads: int) -> Tensor:
    """[batch, kv_heads, keys, head_dim] to [batch, heads, keys, head_dim], repeated in turn."""
    return kv if kv.shape[1] == heads else kv.repeat_interleave(heads // kv.shape[1], dim=1)


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt(head_dim) + added) v, scores and softmax in float32
    or wider (Vaswani et al. 2017). A query that sees nothing gets 0."""
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    with torch.autocast(q.device.type, enabled=False):
        exact = torch.promote_types(q.dtype, torch.float32)
        scores = (q.to(exact) @ k.to(exact).transpose(-2, -1)) * q.shape[-1] ** -0.5
        if (bias := mask.scores(exact)) is not None:
            scores = scores + bias
        if added is not None:
            scores = scores + added.to(exact)
        weights = scores.masked_fill(~mask.dense, float("-inf")).softmax(dim=-1)
        weights = weights.masked_fill(~mask.dense.any(dim=-1, keepdim=True), 0.0)
        return weights.to(v.dtype) @ v


def _make_dense(mask: Mask) -> None:
    """A mask of queries x keys, where one is needed."""
    if mask.features <= {"causal"} or lengths_of(mask) is not None:
        return
    _ = mask.dense
    if mask.bias is not None or mask.content:
        _ = mask.distance


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None = None) -> Tensor:
    """PyTorch's fused attention; the flash kernel where the mask is causal and nothing else, on a
    CPU also within documents. There its kernel wants values as wide as keys, and keeps no scores;
    so narrower ones are filled up where there are many queries: 0.4 of the time at 192 and 128.
    A query that sees nothing gets 0.
    """
    narrower = q.shape[-1] - v.shape[-1]
    if narrower > 0 and mask.queries > 1 and q.device.type == "cpu":
        return sdpa(q, k, F.pad(v, (0, narrower)), mask, added)[..., :-narrower]
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    if mask.features <= {"causal"}:
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask.causal)
    if mask.queries == 1 and mask.features <= {"causal", "offset"}:  # the newest sees all
        return F.scaled_dot_product_attention(q, k, v)
    if (lengths := lengths_of(mask)) is not None:
        return by_document(q, k, v, lengths)
    bias = mask.scores(q.dtype)
    if added is not None:
        bias = added.to(q.dtype) if bias is None else bias + added.to(q.dtype)
    seen = mask.dense if bias is None else bias.masked_fill(~mask.dense, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def flex(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """PyTorch's FlexAttention (Dong et al. 2024): skips blocks that the mask empties."""
    from train.attention.flex import flex as attention

    return attention(q, k, v, mask)


WIDEST = 256  # dimensions of a key that FlexAttention's kernel is taken for; more fill its memory


def _flex_refusal(q: Tensor, mask: Mask) -> str | None:
    if q.device.type == "cuda" and q.shape[-1] > WIDEST:
        return f"keys of {q.shape[-1]} dimensions on a GPU"
    return None


def _triton_refusal(q: Tensor, mask: Mask) -> str | None:
    """Why it cannot run here, or cannot give a gradient, or None."""
    if not TRITON_INSTALLED:
        return "this machine: triton is not installed (pip install 'llmcurate[gpu]')"
    from train.attention.flash import op

    return op.refusal(q, _slopes(mask))


def _slopes(mask: Mask) -> Tensor | None:
    return mask.bias.slopes if isinstance(mask.bias, Alibi) else None


def triton(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Our FlashAttention-2 (Dao 2023): reads no block that the mask empties."""
    from train.attention.flash.op import flash_attention

    out, _ = flash_attention(
        q,
        k.to(q.dtype),
        v.to(q.dtype),
        causal=mask.causal,
        window=mask.window,
        sinks=mask.sinks,
        slopes=_slopes(mask),
        spans=mask.spans,
    )
    return out.to(v.dtype)


# Masks that flash/spans.py can say.
_INTERVALS = frozenset({"causal", "documents", "offset", "window", "sinks", "prefix", "alibi"})
_INDEXED = _INTERVALS | {"pattern", "relative", "gaps", "ahead"}
_ALL_MASKS = _INDEXED | {"bias", "cross", "content", "segments"}
_FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})

BACKENDS: dict[str, Backend] = {
    "sdpa": Backend(
        attention=sdpa,
        masks=_ALL_MASKS,
        dtypes=_FLOATS | {torch.float64},
        devices=frozenset({"cpu", "cuda"}),
        prepare=_make_dense,
    ),
    "flex": Backend(
        attention=flex,
        masks=_INDEXED,
        dtypes=_FLOATS,
        devices=frozenset({"cpu", "cuda"}),
        forward_only=frozenset({"cpu"}),
        also=_flex_refusal,
    ),
    "triton": Backend(
        attention=triton,
        masks=_INTERVALS,
        values=False,
        dtypes=_FLOATS,
        devices=frozenset({"cpu", "cuda"}),
        also=_triton_refusal,
        prepare=lambda mask: mask.spans,
    ),
    "eager": Backend(
        attention=eager,
        masks=_ALL_MASKS,
        dtypes=_FLOATS | {torch.float64},
        devices=frozenset({"cpu", "cuda"}),
        prepare=_make_dense,
    ),
}
