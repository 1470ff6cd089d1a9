"""Loops over millions of documents: packing them, and hashing how they begin."""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit


@njit(cache=True, nogil=True)
def grouped(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Counting sort of keys 0 .. count - 1: the end of each key's group, and the indices group by
    group, in order within each."""
    ends = np.zeros(count, np.int64)
    for key in keys:
        ends[key] += 1
    next_index = np.zeros(count, np.int64)
    total = 0
    for key in range(count):  # plain loops: they compile in a third of the time
        next_index[key] = total
        total += ends[key]
        ends[key] = total
    order = np.empty(len(keys), np.int64)
    for index in range(len(keys)):
        key = keys[index]
        order[next_index[key]] = index
        next_index[key] += 1
    return ends, order


@njit(cache=True, nogil=True)
def best_fit(sizes: np.ndarray, context: int) -> tuple[np.ndarray, int]:
    """The row of each item, and the number of rows: an item goes to the row with the least room
    that takes it, the one used last among equals, or opens one. Sizes are 1 .. context.

    Rows with the same room are a chain; over the rooms lies a tree that says where any are, so an
    item costs the logarithm of ``context``.
    """
    leaves = 1
    while leaves <= context:
        leaves *= 2
    some = np.zeros(2 * leaves, np.uint8)
    head = np.full(context + 1, -1, np.int64)
    behind = np.empty(len(sizes), np.int64)
    rows = np.empty(len(sizes), np.int64)
    count = 0
    for index in range(len(sizes)):
        size = sizes[index]
        node = leaves + size
        if not some[node]:
            while node > 1 and (node & 1 or not some[node + 1]):
                node >>= 1
            if node > 1:
                node += 1
                while node < leaves:
                    node *= 2
                    if not some[node]:
                        node += 1
        if node > 1:
            free = node - leaves
            row = head[free]
            head[free] = behind[row]
            if head[free] < 0:
                some[node] = 0
                while node > 1 and not (some[node] or some[node ^ 1]):
                    node >>= 1
                    some[node] = 0
        else:
            free, row = context, count
            count += 1
        rows[index] = row
        free -= size
        if free:
            behind[row] = head[free]
            head[free] = row
            node = leaves + free
            while node and not some[node]:
                some[node] = 1
                node >>= 1
    return rows, count


@njit(cache=True, nogil=True)
def beginnings(
    tokens: np.ndarray, start: np.ndarray, length: np.ndarray, prefix: int, seed: np.uint64
) -> np.ndarray:
    """uint64 a document: a hash of the seed, the length and the first ``prefix`` tokens."""
    out = np.empty(len(start), np.uint64)
    for document in range(len(start)):
        mixed = seed ^ (np.uint64(length[document]) * np.uint64(0x9E3779B97F4A7C15))
        first = start[document]
        for position in range(first, first + min(prefix, length[document])):
            mixed = (mixed ^ np.uint64(tokens[position])) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0x94D049BB133111EB)
        out[document] = mixed ^ (mixed >> np.uint64(31))
    return out
