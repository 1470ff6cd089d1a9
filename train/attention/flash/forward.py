"""The forward pass: a block of queries reads one after another the blocks of keys that it sees, and
rescales its sums when a larger score comes (Dao 2023, algorithm 1). Softmax is in float32 and to
base 2."""

from __future__ import annotations

import triton
import triton.language as tl

from train.attention.flash import ranges


@triton.jit
def _over_keys(
    acc, top, total, q, k_at, v_at, stride_k, stride_v, begin, rows_at, keys, scale, slope,
    start, end, first, last, sunk, prefix,
    MASKED: tl.constexpr, SINKS: tl.constexpr, PREFIX: tl.constexpr, SLOPES: tl.constexpr,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Add a block of keys to the sums; return (weighted values, largest score, sum of weights)."""
    cols, local = begin + tl.arange(0, KEYS), tl.arange(0, KEYS)
    dims = tl.arange(0, PADDED_DIM)
    k_here = ranges.far_along(k_at, begin, stride_k) + local[None, :] * stride_k + dims[:, None]
    v_here = ranges.far_along(v_at, begin, stride_v) + local[:, None] * stride_v + dims[None, :]
    k = ranges.load_tile(
        k_here, (cols < keys)[None, :], (dims < HEAD_DIM)[:, None], MASKED, HEAD_DIM == PADDED_DIM
    )
    raw = tl.dot(q, k, input_precision="ieee")
    if MASKED or SLOPES:
        scores = raw * scale
        if SLOPES:
            scores -= slope * tl.abs(rows_at[:, None] - cols[None, :])
        if MASKED:
            seen = ranges.visible(
                cols, start, end, first, last, sunk, prefix, keys, SINKS=SINKS, PREFIX=PREFIX
            )
            scores = tl.where(seen, scores, float("-inf"))
        new = tl.maximum(top, tl.max(scores, 1))
        # For a row that has seen nothing yet, -inf less -inf would be NaN.
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(scores - base[:, None])
        kept = tl.exp2(top - base)
    else:
        new = tl.maximum(top, tl.max(raw, 1) * scale)
        weights = tl.exp2(raw * scale - new[:, None])
        kept = tl.exp2(top - new)
    total = total * kept + tl.sum(weights, 1)
    acc = acc * kept[:, None]
    v = ranges.load_tile(
        v_here, (cols < keys)[:, None], (dims < HEAD_DIM)[None, :], MASKED, HEAD_DIM == PADDED_DIM
    )
    acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
    return acc, new, total


@triton.jit
def kernel(
    q, k, v, out, lse, starts, ends, origins, prefix, reach, slopes,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    out_batch, out_head, out_row, origins_batch,
    group, queries, keys, scale, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    PREFIX: tl.constexpr, SLOPES: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Compute attention. Grid: blocks of queries, heads, batch. ``scale`` and ``slopes`` include
    the factor log2(e), because softmax is to base 2."""
    # The last queries see the most under a causal mask, so they start first.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    local = tl.arange(0, QUERIES)
    rows = block * QUERIES + local
    dims = tl.arange(0, PADDED_DIM)
    real = rows < queries
    rows_at = rows + (keys - queries)
    start, end, first, last, sunk, low, high = ranges.of_queries(
        starts, ends, origins, reach, batch, origins_batch, rows_at, real, keys, window, sinks,
        CAUSAL=CAUSAL, DOCUMENTS=DOCUMENTS, WINDOW=WINDOW, SINKS=SINKS, PREFIX=PREFIX,
    )  # fmt: skip
    far, fars, near, heads, full, past, tails = ranges.blocks(
        first, last, low, high, real, FAR=SINKS or PREFIX, BLOCK=KEYS
    )
    q_at = q + batch * q_batch + head.to(tl.int64) * q_head
    q_at = ranges.far_along(q_at, block * QUERIES, q_row)
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    q_tile = tl.load(q_at + local[:, None] * q_row + dims[None, :], mask=inside, other=0.0)
    kv_head = (head // group).to(tl.int64)
    k_at = k + batch * k_batch + kv_head * k_head
    v_at = v + batch * v_batch + kv_head * v_head
    prefix_at = prefix + batch * keys if PREFIX else prefix
    slope = tl.load(slopes + head) if SLOPES else 0.0

    acc = tl.zeros([QUERIES, PADDED_DIM], dtype=tl.float32)
    top = tl.full([QUERIES], float("-inf"), dtype=tl.float32)
    total = tl.zeros([QUERIES], dtype=tl.float32)
    for begin in tl.range(full, past, KEYS):
        acc, top, total = _over_keys(
            acc, top, total, q_tile, k_at, v_at, k_row, v_row, begin, rows_at, keys, scale, slope,
            start, end, first, last, sunk, prefix_at,
            MASKED=False, SINKS=SINKS, PREFIX=PREFIX, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, KEYS=KEYS,
        )  # fmt: skip
    for number in tl.range(0, fars + heads + tails):
        begin = ranges.block_start(number, far, fars, near, heads, past, BLOCK=KEYS)
        acc, top, total = _over_keys(
            acc, top, total, q_tile, k_at, v_at, k_row, v_row, begin, rows_at, keys, scale, slope,
            start, end, first, last, sunk, prefix_at,
            MASKED=True, SINKS=SINKS, PREFIX=PREFIX, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, KEYS=KEYS,
        )  # fmt: skip

    some = total > 0
    acc = tl.where(some[:, None], acc / tl.where(some, total, 1.0)[:, None], 0.0)
    out_at = out + batch * out_batch + head.to(tl.int64) * out_head
    out_at = ranges.far_along(out_at, block * QUERIES, out_row)
    tl.store(
        out_at + local[:, None] * out_row + dims[None, :], acc.to(out.dtype.element_ty), mask=inside
    )
    # log2(total) + top, converted to base e; -inf if the row sees nothing.
    logsumexp = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    lse_at = lse + (batch * tl.num_programs(1) + head) * queries
    tl.store(lse_at + rows, logsumexp * 0.6931471805599453, mask=real)
