"""The backward pass: first two numbers per query (the logsumexp of its scores, and what the
gradient of softmax subtracts), then the gradients of queries, keys and values."""

from __future__ import annotations

import triton
import triton.language as tl

from train.attention.flash import ranges


@triton.jit
def rows_kernel(
    out, grad, lse, grad_lse, numbers,
    out_batch, out_head, out_row, grad_batch, grad_head, grad_row,
    lse_batch, lse_head, lse_row, queries,
    LSE: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Compute two ``numbers`` for each query, which both gradient kernels need. The first is the
    logsumexp of its scores to base 2, or inf if the query sees nothing, so that its weights are 0.
    The second is the sum of out x grad over the dimensions of the head, minus the gradient of the
    logsumexp (Dao 2023, algorithm 2, line 4). Grid: blocks of queries, heads, batch. ``numbers``:
    float32 [batch, heads, queries, 2]."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    begin, local = tl.program_id(0) * QUERIES, tl.arange(0, QUERIES)
    rows = begin + local
    dims = tl.arange(0, PADDED_DIM)
    real = rows < queries
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    out_at = ranges.far_along(out + batch * out_batch + head * out_head, begin, out_row)
    grad_at = ranges.far_along(grad + batch * grad_batch + head * grad_head, begin, grad_row)
    output = tl.load(out_at + local[:, None] * out_row + dims[None, :], mask=inside, other=0.0)
    wanted = tl.load(grad_at + local[:, None] * grad_row + dims[None, :], mask=inside, other=0.0)
    products = tl.sum(output.to(tl.float32) * wanted.to(tl.float32), 1)
    if LSE:
        lse_at = grad_lse + batch * lse_batch + head * lse_head
        products -= tl.load(lse_at + rows * lse_row, mask=real, other=0.0)
    rows_of = (batch * tl.num_programs(1) + head) * queries + rows
    total = tl.load(lse + rows_of, mask=real, other=float("-inf"))
    total = tl.where(total == float("-inf"), float("inf"), total * 1.4426950408889634)
    tl.store(numbers + rows_of * 2, total, mask=real)
    tl.store(numbers + rows_of * 2 + 1, products, mask=real)


@triton.jit
def _numbers(at, rows, real, MASKED: tl.constexpr):
    """Return (lse, delta): the two numbers that ``rows_kernel`` has stored for each of the queries
    ``rows``. One load reads both. With two loads, Triton would lay out lse and delta like columns
    of a tile, and the addresses of their elements would use up registers that the tile needs."""
    here = at + rows[:, None] * 2 + tl.arange(0, 2)[None, :]
    if MASKED:
        lse, delta = tl.split(tl.load(here, mask=real[:, None], other=0.0))
        lse = tl.where(real, lse, float("inf"))
    else:
        lse, delta = tl.split(tl.load(here))
    return lse, delta


@triton.jit
def _over_keys(
    acc, q, grad, lse, delta, k_at, v_at, stride_k, stride_v, begin, rows_at, keys, scale, slope,
    start, end, first, last, sunk, prefix,
    MASKED: tl.constexpr, SINKS: tl.constexpr, PREFIX: tl.constexpr, SLOPES: tl.constexpr,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Return ``acc`` plus what a block of keys adds to the queries' gradient, before scaling."""
    cols, local = begin + tl.arange(0, KEYS), tl.arange(0, KEYS)
    dims = tl.arange(0, PADDED_DIM)
    k_here = ranges.far_along(k_at, begin, stride_k) + local[None, :] * stride_k + dims[:, None]
    v_here = ranges.far_along(v_at, begin, stride_v) + local[None, :] * stride_v + dims[:, None]
    inside, within = (cols < keys)[None, :], (dims < HEAD_DIM)[:, None]
    k = ranges.load_tile(k_here, inside, within, MASKED, HEAD_DIM == PADDED_DIM)
    v = ranges.load_tile(v_here, inside, within, MASKED, HEAD_DIM == PADDED_DIM)
    scores = tl.dot(q, k, input_precision="ieee") * scale
    if SLOPES:
        scores -= slope * tl.abs(rows_at[:, None] - cols[None, :])
    weights = tl.exp2(scores - lse[:, None])
    if MASKED:
        seen = ranges.visible(
            cols, start, end, first, last, sunk, prefix, keys, SINKS=SINKS, PREFIX=PREFIX
        )
        weights = tl.where(seen, weights, 0.0)
    change = weights * (tl.dot(grad, v, input_precision="ieee") - delta[:, None])
    return tl.dot(change.to(k.dtype), tl.trans(k), acc, input_precision="ieee")


@triton.jit
def queries_kernel(
    q, k, v, grad, numbers, grad_q, starts, ends, origins, prefix, reach, slopes,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    grad_batch, grad_head, grad_row, to_batch, to_head, to_row, origins_batch,
    group, queries, keys, scale, back, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    PREFIX: tl.constexpr, SLOPES: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of the queries. Each block of queries reads the keys that it sees, and
    sums over them in a fixed order, without atomic operations. Grid: blocks of queries, heads,
    batch. Scores to base 2 are q k^T times ``scale``, scores to base e are q k^T times ``back``."""
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
    at = head.to(tl.int64)
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    q_at = ranges.far_along(q + batch * q_batch + at * q_head, block * QUERIES, q_row)
    q_tile = tl.load(q_at + local[:, None] * q_row + dims[None, :], mask=inside, other=0.0)
    grad_at = grad + batch * grad_batch + at * grad_head
    grad_at = ranges.far_along(grad_at, block * QUERIES, grad_row)
    grad_tile = tl.load(grad_at + local[:, None] * grad_row + dims[None, :], mask=inside, other=0.0)
    rows_of = (batch * tl.num_programs(1) + head) * queries
    lse_tile, delta_tile = _numbers(numbers + rows_of * 2, rows, real, MASKED=True)
    kv_head = (head // group).to(tl.int64)
    k_at = k + batch * k_batch + kv_head * k_head
    v_at = v + batch * v_batch + kv_head * v_head
    prefix_at = prefix + batch * keys if PREFIX else prefix
    slope = tl.load(slopes + head) if SLOPES else 0.0

    acc = tl.zeros([QUERIES, PADDED_DIM], dtype=tl.float32)
    for begin in tl.range(full, past, KEYS):
        acc = _over_keys(
            acc, q_tile, grad_tile, lse_tile, delta_tile, k_at, v_at, k_row, v_row, begin,
            rows_at, keys, scale, slope, start, end, first, last, sunk, prefix_at,
            MASKED=False, SINKS=SINKS, PREFIX=PREFIX, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, KEYS=KEYS,
        )  # fmt: skip
    for number in tl.range(0, fars + heads + tails):
        begin = ranges.block_start(number, far, fars, near, heads, past, BLOCK=KEYS)
        acc = _over_keys(
            acc, q_tile, grad_tile, lse_tile, delta_tile, k_at, v_at, k_row, v_row, begin,
            rows_at, keys, scale, slope, start, end, first, last, sunk, prefix_at,
            MASKED=True, SINKS=SINKS, PREFIX=PREFIX, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, KEYS=KEYS,
        )  # fmt: skip
    to = ranges.far_along(grad_q + batch * to_batch + at * to_head, block * QUERIES, to_row)
    to += local[:, None] * to_row + dims[None, :]
    tl.store(to, (acc * back).to(grad_q.dtype.element_ty), mask=inside)


@triton.jit
def _over_queries(
    of_k, of_v, k, v, q, grad, numbers, slopes, head, q_head, q_row, grad_head, grad_row,
    begin, offset, queries, scale, cols, first, last,
    MASKED: tl.constexpr, SLOPES: tl.constexpr,
    HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Add the contribution of a block of queries to the gradients of keys and values. Tiles have
    the shape keys x queries. The first query of the block is at the same token as key ``begin``."""
    local = tl.arange(0, QUERIES)
    rows_at = begin + local
    rows, first_row = rows_at - offset, begin - offset
    dims = tl.arange(0, PADDED_DIM)
    q_here = ranges.far_along(q + head * q_head, first_row, q_row)
    q_here += local[:, None] * q_row + dims[None, :]
    grad_here = ranges.far_along(grad + head * grad_head, first_row, grad_row)
    grad_here += local[:, None] * grad_row + dims[None, :]
    real, within = (rows >= 0) & (rows < queries), (dims < HEAD_DIM)[None, :]
    q_tile = ranges.load_tile(q_here, real[:, None], within, MASKED, HEAD_DIM == PADDED_DIM)
    grad_tile = ranges.load_tile(grad_here, real[:, None], within, MASKED, HEAD_DIM == PADDED_DIM)
    lse, delta = _numbers(numbers + head * queries * 2, rows, real, MASKED)
    scores = tl.dot(k, tl.trans(q_tile), input_precision="ieee") * scale
    if SLOPES:
        scores -= tl.load(slopes + head) * tl.abs(rows_at[None, :] - cols[:, None])
    weights = tl.exp2(scores - lse[None, :])
    if MASKED:
        at = rows_at[None, :]
        weights = tl.where((at >= first[:, None]) & (at < last[:, None]), weights, 0.0)
    of_v = tl.dot(weights.to(grad_tile.dtype), grad_tile, of_v, input_precision="ieee")
    change = weights * (tl.dot(v, tl.trans(grad_tile), input_precision="ieee") - delta[None, :])
    of_k = tl.dot(change.to(q_tile.dtype), q_tile, of_k, input_precision="ieee")
    return of_k, of_v


@triton.jit
def keys_kernel(
    q, k, v, grad, numbers, grad_k, grad_v, starts, ends, origins, prefix, slopes,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    grad_batch, grad_head, grad_row, to_batch, to_head, to_row, origins_batch,
    group, queries, keys, scale, back, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    PREFIX: tl.constexpr, SLOPES: tl.constexpr, HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of keys and values. Each block of keys reads the queries that see these
    keys, in every query head that uses the key head. So the sums over grouped query heads are in
    float32 and in a fixed order, without atomic operations and without a gradient per query head in
    memory. Grid: blocks of keys, key heads, batch. Both gradients have the strides ``to_batch``,
    ``to_head`` and ``to_row``. ``SHARED``: True if several query heads use one key head."""
    kv_head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    block, local = tl.program_id(0) * KEYS, tl.arange(0, KEYS)
    cols = block + local
    dims = tl.arange(0, PADDED_DIM)
    real = cols < keys
    offset = keys - queries
    first, last = ranges.of_keys(
        starts, ends, origins, prefix, batch, origins_batch,
        cols, real, keys, offset, window, sinks,
        CAUSAL=CAUSAL, DOCUMENTS=DOCUMENTS, WINDOW=WINDOW, SINKS=SINKS, PREFIX=PREFIX,
    )  # fmt: skip
    _, fars, near, heads, full, past, tails = ranges.blocks(
        first, last, first, last, real, FAR=False, BLOCK=QUERIES
    )
    at = kv_head.to(tl.int64)
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    k_here = ranges.far_along(k + batch * k_batch + at * k_head, block, k_row)
    k_here += local[:, None] * k_row + dims[None, :]
    v_here = ranges.far_along(v + batch * v_batch + at * v_head, block, v_row)
    v_here += local[:, None] * v_row + dims[None, :]
    k_tile = tl.load(k_here, mask=inside, other=0.0)
    v_tile = tl.load(v_here, mask=inside, other=0.0)
    q, grad = q + batch * q_batch, grad + batch * grad_batch
    numbers += batch * tl.num_programs(1) * group * queries * 2
    of_k = tl.zeros([KEYS, PADDED_DIM], dtype=tl.float32)
    of_v = tl.zeros([KEYS, PADDED_DIM], dtype=tl.float32)
    # One loop over the blocks of all heads that share the keys: each loop fills its pipeline anew.
    masked, whole = heads + tails, (past - full) // QUERIES
    for number in tl.range(0, group * masked):
        shared = number // masked if SHARED else 0
        block_number = number - shared * masked if SHARED else number
        begin = ranges.block_start(block_number, 0, fars, near, heads, past, BLOCK=QUERIES)
        of_k, of_v = _over_queries(
            of_k, of_v, k_tile, v_tile, q, grad, numbers, slopes, at * group + shared,
            q_head, q_row, grad_head, grad_row, begin, offset, queries, scale, cols, first, last,
            MASKED=True, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, QUERIES=QUERIES,
        )  # fmt: skip
    for number in tl.range(0, group * whole):
        shared = number // whole if SHARED else 0
        begin = full + (number - shared * whole if SHARED else number) * QUERIES
        of_k, of_v = _over_queries(
            of_k, of_v, k_tile, v_tile, q, grad, numbers, slopes, at * group + shared,
            q_head, q_row, grad_head, grad_row, begin, offset, queries, scale, cols, first, last,
            MASKED=False, SLOPES=SLOPES,
            HEAD_DIM=HEAD_DIM, PADDED_DIM=PADDED_DIM, QUERIES=QUERIES,
        )  # fmt: skip
    to = batch * to_batch + at * to_head + tl.cast(block, tl.int64) * to_row
    to += local[:, None] * to_row + dims[None, :]
    tl.store(grad_k + to, (of_k * back).to(grad_k.dtype.element_ty), mask=inside)
    tl.store(grad_v + to, of_v.to(grad_v.dtype.element_ty), mask=inside)
