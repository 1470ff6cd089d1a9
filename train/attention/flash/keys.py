"""The gradients of keys and values: each block of keys goes over the queries that see it, of every
query head that shares it. So GQA's sum is made in float32, in order, without atomics and without a
gradient for each query head in memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from train.attention.flash import ranges


@triton.jit
def _over(
    of_k, of_v, k, v, q_at, grad_at, lse_at, delta_at, stride_q, stride_grad, begin, offset,
    queries, scale, slope, cols, first, last,
    MASKED: tl.constexpr, SLOPES: tl.constexpr,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head, added to both gradients; all is transposed: keys x queries.
    ``begin`` counts as keys do.
    """
    rows_at = begin + tl.arange(0, QUERIES)
    rows = rows_at - offset
    dims = tl.arange(0, PADDED_DIM)
    q_here = q_at + rows[:, None] * stride_q + dims[None, :]
    grad_here = grad_at + rows[:, None] * stride_grad + dims[None, :]
    if MASKED:
        real = (rows >= 0) & (rows < queries)
        inside = real[:, None] & (dims < HEAD_DIM)[None, :]
        q = tl.load(q_here, mask=inside, other=0.0)
        grad = tl.load(grad_here, mask=inside, other=0.0)
        lse = tl.load(lse_at + rows, mask=real, other=float("-inf")) * 1.4426950408889634
        delta = tl.load(delta_at + rows, mask=real, other=0.0)
        lse = tl.where(lse == float("-inf"), float("inf"), lse)
    else:
        if HEAD_DIM == PADDED_DIM:
            q = tl.load(q_here)
            grad = tl.load(grad_here)
        else:
            q = tl.load(q_here, mask=(dims < HEAD_DIM)[None, :], other=0.0)
            grad = tl.load(grad_here, mask=(dims < HEAD_DIM)[None, :], other=0.0)
        lse = tl.load(lse_at + rows) * 1.4426950408889634
        delta = tl.load(delta_at + rows)
    scores = tl.dot(k, tl.trans(q), input_precision="ieee") * scale
    if SLOPES:
        scores -= slope * (rows_at[None, :] - cols[:, None])
    weights = tl.exp2(scores - lse[None, :])
    if MASKED:
        at = rows_at[None, :]
        weights = tl.where((at >= first[:, None]) & (at < last[:, None]), weights, 0.0)
    of_v = tl.dot(weights.to(grad.dtype), grad, of_v, input_precision="ieee")
    change = weights * (tl.dot(v, tl.trans(grad), input_precision="ieee") - delta[None, :])
    of_k = tl.dot(change.to(q.dtype), q, of_k, input_precision="ieee")
    return of_k, of_v


@triton.jit
def kernel(
    q, k, v, grad, lse, delta, grad_k, grad_v, starts, ends, origins, prefix, slopes,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    grad_batch, grad_head, grad_row, to_batch, to_head, to_row, origins_batch,
    group, queries, keys, scale, back, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    PREFIX: tl.constexpr, SLOPES: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of keys, heads of keys, batch. Both gradients have the strides ``to``."""
    kv_head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    cols = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    dims = tl.arange(0, PADDED_DIM)
    real = cols < keys
    offset = keys - queries
    first, last = ranges.of_keys(
        starts + batch * keys if DOCUMENTS else starts,
        ends + batch * keys if DOCUMENTS else ends,
        origins + batch * origins_batch if SINKS else origins,
        prefix + batch * keys if PREFIX else prefix,
        cols, real, keys, offset, window, sinks,
        CAUSAL=CAUSAL, DOCUMENTS=DOCUMENTS, WINDOW=WINDOW, SINKS=SINKS, PREFIX=PREFIX,
    )  # fmt: skip
    _, fars, near, heads, full, past, tails = ranges.blocks(
        first, last, first, last, real, FAR=False, BLOCK=QUERIES
    )
    at = kv_head.to(tl.int64)
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    k_here = k + batch * k_batch + at * k_head + cols[:, None] * k_row + dims[None, :]
    v_here = v + batch * v_batch + at * v_head + cols[:, None] * v_row + dims[None, :]
    k_tile = tl.load(k_here, mask=inside, other=0.0)
    v_tile = tl.load(v_here, mask=inside, other=0.0)
    of_k = tl.zeros([KEYS, PADDED_DIM], dtype=tl.float32)
    of_v = tl.zeros([KEYS, PADDED_DIM], dtype=tl.float32)
    for shared in range(group):
        head = (at * group + shared).to(tl.int64)
        q_at = q + batch * q_batch + head * q_head
        grad_at = grad + batch * grad_batch + head * grad_head
        rows_of = (batch * tl.num_programs(1) * group + head) * queries
        slope = tl.load(slopes + head) if SLOPES else 0.0
        for number in tl.range(0, heads + tails):
            begin = ranges.place(number, 0, fars, near, heads, past, BLOCK=QUERIES)
            of_k, of_v = _over(
                of_k, of_v, k_tile, v_tile, q_at, grad_at, lse + rows_of, delta + rows_of,
                q_row, grad_row, begin, offset, queries, scale, slope, cols, first, last,
                MASKED=True, SLOPES=SLOPES,
                HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, QUERIES=QUERIES,
            )  # fmt: skip
        for begin in tl.range(full, past, QUERIES):
            of_k, of_v = _over(
                of_k, of_v, k_tile, v_tile, q_at, grad_at, lse + rows_of, delta + rows_of,
                q_row, grad_row, begin, offset, queries, scale, slope, cols, first, last,
                MASKED=False, SLOPES=SLOPES,
                HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, QUERIES=QUERIES,
            )  # fmt: skip
    to = batch * to_batch + at * to_head + cols[:, None] * to_row + dims[None, :]
    tl.store(grad_k + to, (of_k * back).to(grad_k.dtype.element_ty), mask=inside)
    tl.store(grad_v + to, of_v.to(grad_v.dtype.element_ty), mask=inside)
