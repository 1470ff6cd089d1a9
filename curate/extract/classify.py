"""The choice of main text: two linear looks at each block, the second with the chances nearby.

The first look judges a block by its features; the second sees the same features and the chances of
the blocks around it, so that a short line between two paragraphs goes with them (stacked sequential
learning, Cohen and Carvalho 2005). Weights are in blocks.py, fitted by benchmarks/fit_extract.py.
"""

from __future__ import annotations

import numpy as np

from curate.extract.features import COUNT, LEVELS, MASS, SECOND, SPAN, fill, measure
from curate.extract.tags import N_PARENT, NODE
from kernel_cache import njit

_SECOND = len(SECOND)
LIMIT = 0.5  # chance of a block that is kept
FEW, LEAST = 120, 0.15  # letters kept under which a page gets a lower limit, at least this one


@njit(nogil=True)
def logistic(x):
    return 1 / (1 + np.exp(-min(max(x, -30), 30)))


@njit(nogil=True)
def first_look(blocks, nodes, measures, sums, around, heading, weights):
    """chances: float32[blocks] by the features alone; weights: float32[COUNT]."""
    chances = np.empty(len(blocks), np.float32)
    row = np.empty(COUNT, np.float32)
    before = 0.0
    for i in range(len(blocks)):
        fill(i, before, blocks, nodes, measures, sums, around, heading, row)
        x = np.float32(0)
        for k in range(COUNT):
            x += row[k] * weights[k]
        chances[i] = logistic(x)
        before += measures[i, MASS]
    return chances


@njit(cache=True, nogil=True)
def surroundings(blocks, nodes, measures, chances):
    """rows: float32[blocks, SECOND]: what the second look sees beside the features."""
    n = len(blocks)
    rows = np.zeros((n, _SECOND), np.float32)
    mean = np.zeros((len(nodes), 2), np.float32)
    total, chosen = np.float32(0), np.float32(1e-6)
    for i in range(n):
        # Long blocks say more of their element than short ones, not in proportion.
        mass = np.sqrt(measures[i, MASS])
        mean[blocks[i, NODE], 0] += mass
        mean[blocks[i, NODE], 1] += mass * chances[i]
        total += mass
        chosen += mass * chances[i]
    for k in range(len(nodes) - 1, 0, -1):
        up = nodes[k, N_PARENT]
        mean[up, 0] += mean[k, 0]
        mean[up, 1] += mean[k, 1]
    so_far = np.float32(0)
    last = -1
    for i in range(n):
        row = rows[i]
        p = chances[i]
        row[0] = p
        row[1] = np.log((p + 1e-4) / (1 - p + 1e-4)) / 5
        k = 2
        for d in range(-SPAN, SPAN + 1):
            if d:
                if 0 <= i + d < n:
                    row[k] = chances[i + d]
                k += 1
        up = blocks[i, NODE]
        for _ in range(LEVELS):
            row[k] = mean[up, 1] / mean[up, 0]
            up = nodes[up, N_PARENT]
            k += 1
        mass = np.sqrt(measures[i, MASS])
        row[k] = so_far / chosen
        so_far += mass * p
        row[k + 1] = max(np.float32(0), (chosen - so_far) / chosen)
        row[k + 2] = min(row[k], row[k + 1])
        row[k + 3] = 1 if last < 0 else min(1.0, (i - last) / 20)
        if p >= 0.5:
            last = i
        row[k + 5] = chosen / total
        row[k + 6] = np.log1p(chosen) / 3
    following = -1
    for i in range(n - 1, -1, -1):
        k = 2 + 2 * SPAN + LEVELS + 4
        rows[i, k] = 1 if following < 0 else min(1.0, (following - i) / 20)
        if chances[i] >= 0.5:
            following = i
    return rows


@njit(nogil=True)
def second_look(blocks, nodes, measures, sums, around, heading, rows, weights):
    """chances: float32[blocks]; weights: float32[COUNT + SECOND]; rows: `surroundings`."""
    chances = np.empty(len(blocks), np.float32)
    row = np.empty(COUNT, np.float32)
    before = 0.0
    for i in range(len(blocks)):
        fill(i, before, blocks, nodes, measures, sums, around, heading, row)
        x = np.float32(0)
        for k in range(COUNT):
            x += row[k] * weights[k]
        for k in range(rows.shape[1]):
            x += rows[i, k] * weights[COUNT + k]
        chances[i] = logistic(x)
        before += measures[i, MASS]
    return chances


@njit(nogil=True)
def keep_likely(measures, chances):
    """keep: bool[blocks]: those that are more likely main text than not; on a page where nearly
    nothing is, those that come closest."""
    limit = np.float32(LIMIT)
    mass, most = np.float32(0), np.float32(0)
    for i in range(len(chances)):
        most = max(most, chances[i])
        if chances[i] >= limit:
            mass += measures[i, MASS]
    if mass < FEW:
        limit = min(limit, max(np.float32(LEAST), most * np.float32(0.6)))
    return chances >= limit


@njit(nogil=True)
def choose(text, blocks, nodes, first, last):
    """keep: bool[blocks] of a page with at least one block."""
    measures, sums, around, heading = measure(text, blocks, nodes)
    chances = first_look(blocks, nodes, measures, sums, around, heading, first)
    rows = surroundings(blocks, nodes, measures, chances)
    chances = second_look(blocks, nodes, measures, sums, around, heading, rows, last)
    return keep_likely(measures, chances)
