"""FlexAttention: the mask as a function of indices, compiled into a kernel on a GPU. On a CPU it
runs uncompiled and forward only, for comparison with ``eager``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from llmcurate.base.errors import RunFailed
from train.attention.mask import Alibi, Mask, Relative, window_mask

# Most shapes that a process compiles. By default PyTorch compiles 8; others run 50 times slower.
SHAPES = 64


@cache
def _kernel() -> Any:
    return torch.compile(flex_attention, dynamic=False)


def compiled(*tensors: Tensor, **settings: Any) -> Any:
    """Run ``flex_attention`` as a kernel that is compiled for the shapes of ``tensors``. Raises
    ``RunFailed`` if this process has compiled it for too many shapes (``SHAPES`` is the most)."""
    from torch._dynamo import config, exc

    try:
        with config.patch(recompile_limit=SHAPES, fail_on_recompile_limit_hit=True):
            return _kernel()(*tensors, **settings)
    except exc.FailOnRecompileLimitHit as error:
        raise RunFailed(
            f"attention flex can be compiled for {SHAPES} shapes of rows, and this run has more:"
            " choose attention sdpa, or rows of fewer lengths"
        ) from error


def flex(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    inside = torch.compiler.is_compiling()  # the caller is compiled, and this function with it
    run: Any = compiled if q.is_cuda and not inside else flex_attention
    # Built once per mask, not once per layer.
    block = mask.__dict__.setdefault("_flex_block", None) or block_mask(mask, q.shape[0])
    mask.__dict__["_flex_block"] = block
    out: Tensor = run(
        q, k, v, score_mod=_score(mask), block_mask=block, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out


def block_mask(mask: Mask, batch: int) -> BlockMask:
    """Return FlexAttention's form of ``mask``: the blocks of queries x keys that have visible
    pairs, and the function that tells if a pair is visible."""
    offset, window, sinks = mask.offset, mask.window, mask.sinks
    documents, prefix, positions = mask.documents, mask.prefix, mask.key_positions
    shared = positions.shape[0] == 1
    table = window_mask(mask) if "pattern" in mask.features else None

    def seen(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        own = query + offset
        row = b * 0 if shared else b
        allowed = own >= key if mask.causal else key >= 0
        if table is not None:
            row, head = (b * 0 if table.shape[0] == 1 else b), (h if mask.dilations else h * 0)
            allowed = allowed & table[row, head, query, key]
        elif window is not None:
            near = (positions[row, own] - positions[row, key]).abs() < window
            if sinks:
                near = near | (positions[row, key] < sinks)
            allowed = allowed & near
        if prefix is not None:
            allowed = allowed | prefix[b, key]
        if documents is not None:
            allowed = allowed & (documents[b, own] == documents[b, key])
        return allowed

    same = documents is None and prefix is None and (window is None or shared)
    heads = len(mask.dilations) or None
    return create_block_mask(
        seen, None if same else batch, heads, mask.queries, mask.keys, device=mask.device
    )


def _score(mask: Mask) -> Any:
    bias, offset, positions = mask.bias, mask.offset, mask.key_positions
    if bias is None:
        return None
    shared = positions.shape[0] == 1

    def distance(b: Tensor, query: Tensor, key: Tensor) -> Tensor:
        row = b * 0 if shared else b
        return positions[row, query + offset] - positions[row, key]

    if isinstance(bias, Alibi):
        slopes = bias.slopes

        def alibi(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score - slopes[h] * distance(b, query, key).abs()

        return alibi

    assert isinstance(bias, Relative)

    def relative(score: Tensor, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + bias.weight[bias.bucket(distance(b, query, key)), h]

    return relative
