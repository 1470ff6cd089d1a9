"""What both gradient kernels need of each query: the sum over the head of out x its gradient, less
the gradient of the logsumexp (Dao 2023, algorithm 2, line 4).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def kernel(
    out, grad, grad_lse, delta,
    out_batch, out_head, out_row, grad_batch, grad_head, grad_row,
    lse_batch, lse_head, lse_row, queries,
    LSE: tl.constexpr, HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of queries, heads, batch. ``delta``: float32 [batch, heads, queries]."""
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    dims = tl.arange(0, PADDED_DIM)
    real = rows < queries
    inside = real[:, None] & (dims < HEAD_DIM)[None, :]
    out_at = out + batch * out_batch + head * out_head
    grad_at = grad + batch * grad_batch + head * grad_head
    made = tl.load(out_at + rows[:, None] * out_row + dims[None, :], mask=inside, other=0.0)
    wanted = tl.load(grad_at + rows[:, None] * grad_row + dims[None, :], mask=inside, other=0.0)
    found = tl.sum(made.to(tl.float32) * wanted.to(tl.float32), 1)
    if LSE:
        lse_at = grad_lse + batch * lse_batch + head * lse_head
        found -= tl.load(lse_at + rows * lse_row, mask=real, other=0.0)
    tl.store(delta + (batch * tl.num_programs(1) + head) * queries + rows, found, mask=real)
