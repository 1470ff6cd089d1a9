"""The back ends of ``attend``. ``eager`` defines the result for every mask; the others must agree
with it. A ``Backend`` declares the mask features and dtypes that it supports. To add one, write
its function and register it in ``BACKENDS``; choice.py decides when ``auto`` takes it.
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
from train.device import generation

TRITON_INSTALLED: bool = importlib.util.find_spec("triton") is not None

SHORTEST = 32  # mean tokens per document; if shorter, one call each costs more than it saves

Lengths = tuple[tuple[int, ...], ...]


def lengths_of(mask: Mask) -> Lengths | None:
    """Return the lengths of the documents in each row if attention can run one document at a time,
    else None. Attention can do this on a CPU, outside of torch.compile, if the mask is causal, has
    documents and no other feature, and if the documents are contiguous and not too short
    (SHORTEST). The result is computed once per mask."""
    documents = mask.documents
    if (
        documents is None
        or mask.features != {"causal", "documents"}
        or type(documents) is not Tensor  # a tensor without storage cannot be read
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
            return None  # an id that occurs again is the same document, in two pieces
        lengths.append(tuple(b - a for a, b in pairwise([0, *fresh, length])))
    return tuple(lengths) if sum(map(len, lengths)) * SHORTEST <= rows * length else None


def by_document(q: Tensor, k: Tensor, v: Tensor, lengths: Lengths) -> Tensor:
    """Return causal attention within each document. ``q``, ``k``, ``v``: [batch, heads, length,
    head_dim]. The plain causal kernel runs on one document at a time, because one call with a mask
    over the whole row would also compute the scores between tokens of different documents."""
    if all(len(sizes) == 1 for sizes in lengths):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rows = []
    for sizes, *row in zip(lengths, q, k, v, strict=True):
        parts = zip(*(x[None].split(sizes, dim=2) for x in row), strict=True)
        out = [F.scaled_dot_product_attention(a, b, c, is_causal=True) for a, b, c in parts]
        # [length, heads, head_dim] is the memory order of the kernel and of the next layer.
        rows.append(torch.cat([piece.transpose(1, 2) for piece in out], dim=1))
    return torch.cat(rows).transpose(1, 2)


Attention = Callable[..., Tensor]  # arguments: q, k, v, mask, and scores to add


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An attention function and the cases that it supports: mask features and dtypes."""

    attention: Attention
    masks: frozenset[str]
    dtypes: frozenset[torch.dtype]
    # True if values may have another size than queries and keys.
    values: bool = True
    # Devices on which it has no backward pass.
    forward_only: frozenset[str] = frozenset()
    # Returns a reason for refusal that the fields above cannot express, or None.
    other_refusal: Callable[[Tensor, Mask], str | None] | None = None
    # Stores in the mask what all layers share. The second argument: True if layers are compiled.
    prepare: Callable[[Mask, bool], object] | None = None

    def refusal(self, q: Tensor, mask: Mask, values: int | None = None) -> str | None:
        """Return why this back end does not support these queries with this mask, or None if it
        does. ``values``: the size of a value vector; None: that of a query vector."""
        if not self.values and values not in (None, q.shape[-1]):
            return f"values of {values} dimensions with keys of {q.shape[-1]}"
        if missing := mask.features - self.masks:
            return f"the mask {', '.join(sorted(missing))}"
        if q.dtype not in self.dtypes:
            return f"the dtype {q.dtype}"
        if q.device.type in self.forward_only and q.requires_grad and torch.is_grad_enabled():
            return f"gradients on the device {q.device.type}"
        return None if self.other_refusal is None else self.other_refusal(q, mask)


def _repeat_heads(kv: Tensor, heads: int) -> Tensor:
    return kv if kv.shape[1] == heads else kv.repeat_interleave(heads // kv.shape[1], dim=1)


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(head_dim) + bias + added) v (Vaswani et al. 2017). Scores and
    softmax are in float32 or wider. A query that sees no key gets 0. The mask's ``softcap``
    applies to the scaled products, before bias and added scores."""
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    with torch.autocast(q.device.type, enabled=False):
        exact = torch.promote_types(q.dtype, torch.float32)
        scores = (q.to(exact) @ k.to(exact).transpose(-2, -1)) * q.shape[-1] ** -0.5
        if (cap := mask.softcap) is not None:
            scores = cap * (scores / cap).tanh()
        if (bias := mask.scores(exact)) is not None:
            scores = scores + bias
        if added is not None:
            scores = scores + added.to(exact)
        weights = scores.masked_fill(~mask.dense, float("-inf")).softmax(dim=-1)
        weights = weights.masked_fill(~mask.dense.any(dim=-1, keepdim=True), 0.0)
        return weights.to(v.dtype) @ v


def _make_dense(mask: Mask, compiled: bool) -> None:
    if mask.features <= {"causal"} or (not compiled and lengths_of(mask) is not None):
        return
    _ = mask.dense
    if mask.bias is not None or mask.content:
        _ = mask.distance


def has_cudnn(device: torch.device) -> bool:
    """Return True if PyTorch's SDPA uses cuDNN's kernel for plain masks on this device. PyTorch 2.9
    does not; 2.11 does (seen on an H200), and so does 2.13 (check_prefer_cudnn_attention in
    sdp_utils.cpp). The kernel's gradients are not deterministic."""
    recent = torch.__version__ >= "2.11" and (torch.backends.cudnn.version() or 0) > 91_500
    same_bits = torch.are_deterministic_algorithms_enabled()
    return recent and not same_bits and generation(device) in (9, 10)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None = None) -> Tensor:
    """Run PyTorch's fused attention. A query that sees no key gets 0. PyTorch's flash kernel runs
    if the mask is only causal. On a CPU it also runs if the documents can be computed one at a time
    (``lengths_of``). On a CPU the flash kernel needs values as wide as keys, so narrower values are
    padded with zeros if there is more than one query. For example, with keys of 192 and values of
    128 dimensions, the flash kernel with padding takes 40 % of the time of the unfused kernel."""
    narrower = q.shape[-1] - v.shape[-1]
    if narrower > 0 and mask.queries > 1 and q.device.type == "cpu":
        return sdpa(q, k, F.pad(v, (0, narrower)), mask, added)[..., :-narrower]
    if mask.queries == 1:
        return _one_query(q, k, v, mask, added)
    k, v = _repeat_heads(k, q.shape[1]), _repeat_heads(v, q.shape[1])
    if mask.features <= {"causal"}:
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask.causal)
    if (lengths := lengths_of(mask)) is not None:
        return by_document(q, k, v, lengths)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_seen(q, mask, added))


def _one_query(q: Tensor, k: Tensor, v: Tensor, mask: Mask, added: Tensor | None) -> Tensor:
    """Return the attention of one query per row, as in generation. Query heads that share a key
    head become several queries of one head, so that the cache is not copied for each of them."""

    def shared(x: Tensor) -> Tensor:
        return x if x.shape[1] == 1 else x.reshape(x.shape[0], k.shape[1], -1, x.shape[3])

    every = mask.features <= {"causal", "offset"}  # the newest token sees all keys
    seen = None if every else shared(_seen(q, mask, added))
    out = F.scaled_dot_product_attention(shared(q), k, v, attn_mask=seen)
    return out.reshape(*q.shape[:3], -1)


def _seen(q: Tensor, mask: Mask, added: Tensor | None) -> Tensor:
    """Return the argument attn_mask of PyTorch's scaled_dot_product_attention: bool, True for keys
    that a query sees, or numbers to add to the scores (-inf for hidden keys)."""
    bias = mask.scores(q.dtype)
    if added is not None:
        bias = added.to(q.dtype) if bias is None else bias + added.to(q.dtype)
    return mask.dense if bias is None else bias.masked_fill(~mask.dense, float("-inf"))


def flex(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Run PyTorch's FlexAttention (Dong et al. 2024), which skips blocks without visible pairs."""
    from train.attention.flex import flex as attention

    return attention(q, k, v, mask)


WIDEST = 256  # largest head_dim on a GPU; more overflows the memory of FlexAttention's kernel


def _triton_refusal(q: Tensor, mask: Mask) -> str | None:
    if not TRITON_INSTALLED:
        return "this machine: triton is not installed (pip install 'llmcurate[gpu]')"
    from train.attention.flash import op

    return op.refusal(q, _slopes(mask))


def _slopes(mask: Mask) -> Tensor | None:
    return mask.bias.slopes if isinstance(mask.bias, Alibi) else None


def triton(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Run our FlashAttention-2 (Dao 2023), which reads no block that the mask hides completely."""
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


# Mask features that flash/spans.py can express.
_INTERVALS = frozenset({"causal", "documents", "offset", "window", "sinks", "prefix", "alibi"})
_INDEXED = _INTERVALS | {"pattern", "relative", "gaps", "ahead"}
_ALL_MASKS = _INDEXED | {"bias", "cross", "content", "segments"}
_FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16})

BACKENDS: dict[str, Backend] = {
    "sdpa": Backend(
        attention=sdpa,
        masks=_ALL_MASKS,
        dtypes=_FLOATS | {torch.float64},
        prepare=_make_dense,
    ),
    "flex": Backend(
        attention=flex,
        masks=_INDEXED,
        dtypes=_FLOATS,
        forward_only=frozenset({"cpu"}),
        other_refusal=lambda q, mask: (
            f"keys of {q.shape[-1]} dimensions on a GPU"
            if q.device.type == "cuda" and q.shape[-1] > WIDEST
            else None
        ),
    ),
    "triton": Backend(
        attention=triton,
        masks=_INTERVALS,
        values=False,
        dtypes=_FLOATS,
        other_refusal=_triton_refusal,
        prepare=lambda mask, compiled: mask.spans,
    ),
    "eager": Backend(
        attention=eager,
        masks=_ALL_MASKS | {"softcap"},
        dtypes=_FLOATS | {torch.float64},
        prepare=_make_dense,
    ),
}
