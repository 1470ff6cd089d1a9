"""The gradient of the queries: each block of queries goes once more over the keys it sees, and so
adds up alone and in order, without atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl

from train.attention.flash import ranges


@triton.jit
def _over(
    acc, q, grad, lse, delta, k_at, v_at, stride_k, stride_v, begin, rows_at, keys, scale, slope,
    start, end, first, last, sunk, prefix,
    MASKED: tl.constexpr, SINKS: tl.constexpr, PREFIX: tl.constexpr, SLOPES: tl.constexpr,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """A block of keys, added to the gradient (but for the scale)."""
    cols = begin + tl.arange(0, KEYS)
    dims = tl.arange(0, PADDED_DIM)
    k_here = k_at + cols[None, :] * stride_k + dims[:, None]
    v_here = v_at + cols[None, :] * stride_v + dims[:, None]
    if MASKED:
        inside = (cols < keys)[None, :] & (dims < HEAD_DIM)[:, None]
        k = tl.load(k_here, mask=inside, other=0.0)
        v = tl.load(v_here, mask=inside, other=0.0)
    elif HEAD_DIM == PADDED_DIM:
        k = tl.load(k_here)
        v = tl.load(v_here)
    else:
        k = tl.load(k_here, mask=(dims < HEAD_DIM)[:, None], other=0.0)
        v = tl.load(v_here, mask=(dims < HEAD_DIM)[:, None], other=0.0)
    scores = tl.dot(q, k, input_precision="ieee") * scale
    if SLOPES:
        scores -= slope * (rows_at[:, None] - cols[None, :])
    weights = tl.exp2(scores - lse[:, None])
    if MASKED:
        seen = ranges.visible(
            cols, start, end, first, last, sunk, prefix, keys, SINKS=SINKS, PREFIX=PREFIX
        )
        weights = tl.where(seen, weights, 0.0)
    change = weights * (tl.dot(grad, v, input_precision="ieee") - delta[:, None])
    return tl.dot(change.to(k.dtype), tl.trans(k), acc, input_precision="ieee")


@triton.jit
def kernel(
    q, k, v, grad, lse, delta, grad_q, starts, ends, origins, prefix, reach, slopes,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    grad_batch, grad_head, grad_row, to_batch, to_head, to_row, origins_batch,
    group, queries, keys, scale, back, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    PREFIX: tl.constexpr, SLOPES: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of queries, heads, batch. ``scale`` is to base 2, ``back`` the scale itself."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    rows = block * QUERIES + tl.arange(0, QUERIES)
    dims = tl.arange(0, PADDED_DIM)
    real = rows < queries
    rows_at = rows + (keys - queries)
    start, end, first, last, sunk, low, high = ranges.of_queries(
        starts + batch * keys if DOCUMENTS else starts,
        ends + batch * keys if DOCUMENTS else ends,
        origins + batch * origins_batch if SINKS else origins,
        reach + batch * keys if PREFIX else reach,
        rows_at, real, keys, window, sinks,
        CAUSAL=CAUSAL, DOCUMENTS=DOCUMENTS, WINDOW=WINDOW, SINKS=SINKS, PREFIX=PREFIX,
    )  # fmt: skip
    far, fars, near, heads, full, past, tails = ranges.blocks(
        first, last, low, high, real, FAR=SINKS or PREFIX, BLOCK=KEYS
    )
    at = head.to(tl.int64)
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    q_here = q + batch * q_batch + at * q_head + rows[:, None] * q_row + dims[None, :]
    q_tile = tl.load(q_here, mask=inside, other=0.0)
    grad_here = grad + batch * grad_batch + at * grad_head
    grad_here += rows[:, None] * grad_row + dims[None, :]
    grad_tile = tl.load(grad_here, mask=inside, other=0.0)
    rows_of = (batch * tl.num_programs(1) + head) * queries + rows
    # A row that sees nothing, and one that does not exist, weighs nothing: its logsumexp is inf.
    lse_tile = tl.load(lse + rows_of, mask=real, other=float("-inf")) * 1.4426950408889634
    lse_tile = tl.where(lse_tile == float("-inf"), float("inf"), lse_tile)
    delta_tile = tl.load(delta + rows_of, mask=real, other=0.0)
    kv_head = (head // group).to(tl.int64)
    k_at = k + batch * k_batch + kv_head * k_head
    v_at = v + batch * v_batch + kv_head * v_head
    prefix_at = prefix + batch * keys if PREFIX else prefix
    slope = tl.load(slopes + head) if SLOPES else 0.0

    acc = tl.zeros([QUERIES, PADDED_DIM], dtype=tl.float32)
    for begin in tl.range(full, past, KEYS):
        acc = _over(
            acc, q_tile, grad_tile, lse_tile, delta_tile, k_at, v_at, k_row, v_row, begin,
            rows_at, keys, scale, slope, start, end, first, last, sunk, prefix_at,
            MASKED=False, SINKS=SINKS, PREFIX=PREFIX, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, KEYS=KEYS,
        )  # fmt: skip
    for number in tl.range(0, fars + heads + tails):
        begin = ranges.place(number, far, fars, near, heads, past, BLOCK=KEYS)
        acc = _over(
            acc, q_tile, grad_tile, lse_tile, delta_tile, k_at, v_at, k_row, v_row, begin,
            rows_at, keys, scale, slope, start, end, first, last, sunk, prefix_at,
            MASKED=True, SINKS=SINKS, PREFIX=PREFIX, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, KEYS=KEYS,
        )  # fmt: skip
    to = grad_q + batch * to_batch + at * to_head + rows[:, None] * to_row + dims[None, :]
    tl.store(to, (acc * back).to(grad_q.dtype.element_ty), mask=inside)
