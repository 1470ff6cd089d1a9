"""Intervals of positions: the keys that a query sees, the queries that see a key, and the blocks of
each. ``FAR`` means that a query may also see keys outside its interval: sinks and prefix. All
positions are indices of keys: the query in row ``row`` has the index ``row + offset``.
"""

from __future__ import annotations

import triton
import triton.language as tl

NEVER = tl.constexpr(2**30)  # past every key; twice that is still an int32


@triton.jit
def far_along(at, begin, stride):
    """Return the pointer ``at`` moved on by ``begin`` rows. The offset has 64 bits, because at 64
    heads of 128 dimensions and 262,144 tokens an index exceeds 2^31."""
    return at + tl.cast(begin, tl.int64) * stride


@triton.jit
def load_tile(pointers, inside, within, MASKED: tl.constexpr, WHOLE: tl.constexpr):
    """Load a tile. With ``MASKED``, entries that are not ``inside`` become 0. ``within``: false for
    the dimensions that pad a head; not needed with ``WHOLE`` (head_dim is a power of two)."""
    if MASKED:
        tile = tl.load(pointers, mask=inside & within, other=0.0)
    elif WHOLE:
        tile = tl.load(pointers)
    else:
        tile = tl.load(pointers, mask=within, other=0.0)
    return tile


@triton.jit
def of_queries(
    starts, ends, origins, reach, batch, origins_batch, at, real, keys, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr,
    SINKS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """Return (start, end, first, last, sunk, low, high), key positions for each query of ``at``.
    Its document is [start, end). It sees the keys [first, last) and also sinks, which end at
    ``sunk``, and prefix keys. Sinks and prefix keys outside of [first, last) are in [low, high)."""
    if DOCUMENTS:
        start = tl.load(starts + batch * keys + at, mask=real, other=0)
        end = tl.load(ends + batch * keys + at, mask=real, other=0)
    else:
        start = at * 0
        end = tl.where(real, keys, 0)
    first, last = start, end
    if CAUSAL:
        last = tl.minimum(last, at + 1)
    sunk, high = start, start
    if SINKS:
        origin = tl.load(origins + batch * origins_batch + at, mask=real, other=0)
        sunk = tl.minimum(origin + sinks, last)
    if WINDOW:
        first = tl.maximum(first, at - window + 1)
        last = tl.minimum(last, at + window)
    if SINKS:
        high = tl.where(sunk > last, sunk, tl.minimum(sunk, first))
    if PREFIX:
        high = tl.maximum(high, tl.load(reach + batch * keys + at, mask=real, other=0))
    # Far keys come before the interval, or after it if it begins with the document.
    low = tl.where(first > start, start, last)
    return start, end, first, last, sunk, low, high


@triton.jit
def of_keys(
    starts, ends, origins, prefix, batch, origins_batch, at, real, keys, offset, window, sinks,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, WINDOW: tl.constexpr,
    SINKS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """Return (first, last) for each key of ``at``: the queries [first, last) that see this key. The
    queries that see a sink or a prefix key are one (longer) interval, too."""
    if DOCUMENTS:
        start = tl.load(starts + batch * keys + at, mask=real, other=0)
        end = tl.load(ends + batch * keys + at, mask=real, other=0)
    else:
        start = at * 0
        end = tl.where(real, keys, 0)
    first, last = start, end
    if CAUSAL:
        first = tl.maximum(first, at)
    if WINDOW:
        near, far = tl.maximum(first, at - window + 1), tl.minimum(last, at + window)
        if SINKS:
            origin = tl.load(origins + batch * origins_batch + at, mask=real, other=0)
            sink = at - origin < sinks
            near, far = tl.where(sink, first, near), tl.where(sink, last, far)
        first, last = near, far
    if PREFIX:
        always = tl.load(prefix + batch * keys + at, mask=real, other=0) != 0
        first = tl.where(always, start, first)
        last = tl.where(always, end, last)
    return tl.maximum(first, offset), last


@triton.jit
def blocks(first, last, low, high, real, FAR: tl.constexpr, BLOCK: tl.constexpr):
    """Return (far, fars, near, heads, full, past, tails): which blocks of keys to read for some
    queries. A query sees the keys [first, last) and, with ``FAR``, sinks and prefix keys in [low,
    high). ``real``: false for queries past the end. Three groups of blocks need a mask: ``fars``
    blocks from key ``far`` on, ``heads`` blocks from key ``near`` up to key ``full``, and ``tails``
    blocks from key ``past`` on. All the queries see all keys from ``full`` up to ``past``: no mask
    is needed there. To find queries for given keys, exchange the roles."""
    some = real & (first < last)
    near = tl.min(tl.where(some, first, NEVER)) // BLOCK * BLOCK
    end = tl.max(tl.where(some, last, 0))
    # Rows past the end count as seeing everything. A row that sees nothing leaves no block whole.
    full = tl.max(tl.where(real, tl.where(some, first, NEVER), 0))
    full = (full + BLOCK - 1) // BLOCK * BLOCK
    past = tl.min(tl.where(real, tl.where(some, last, 0), NEVER)) // BLOCK * BLOCK
    far, fars = 0, 0
    if FAR:
        beyond = real & (low < high)
        far = tl.min(tl.where(beyond, low, NEVER)) // BLOCK * BLOCK
        stop = tl.max(tl.where(beyond, high, 0))
        far = tl.minimum(far, near)
        fars = (tl.minimum((stop + BLOCK - 1) // BLOCK * BLOCK, near) - far) // BLOCK
        fars = tl.maximum(fars, 0)
        end = tl.maximum(end, stop)
    end = (end + BLOCK - 1) // BLOCK * BLOCK
    near = tl.minimum(near, end)
    full = tl.maximum(full, near)
    whole = full < past
    full = tl.where(whole, full, end)
    past = tl.where(whole, past, end)
    return far, fars, near, (full - near) // BLOCK, full, past, (end - past) // BLOCK


@triton.jit
def block_start(block, far, fars, near, heads, past, BLOCK: tl.constexpr):
    """Return the first key of a block that needs a mask. ``block``: the block's number among these.
    They are, in order, ``fars`` blocks from key ``far`` on, ``heads`` blocks (not attention heads)
    from key ``near`` on, and blocks from key ``past`` on. The function ``blocks`` returns these
    five numbers."""
    after = block - fars
    begin = tl.where(after < heads, near + after * BLOCK, past + (after - heads) * BLOCK)
    return tl.where(block < fars, far + block * BLOCK, begin)


@triton.jit
def visible(
    cols, start, end, first, last, sunk, prefix, keys,
    SINKS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """Return bool [rows, columns]: true if the row sees the column."""
    col = cols[None, :]
    seen = (col >= first[:, None]) & (col < last[:, None])
    if SINKS:
        seen = seen | ((col >= start[:, None]) & (col < sunk[:, None]))
    if PREFIX:
        always = tl.load(prefix + cols, mask=cols < keys, other=0) != 0
        seen = seen | (always[None, :] & (col >= start[:, None]) & (col < end[:, None]))
    return seen
