"""Compiled loops over millions of documents: packing, and hashing of their first tokens."""

from __future__ import annotations

import numpy as np

from llmcurate.base.kernels import njit


@njit(cache=True, nogil=True)
def counting_sort(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ends, order) for keys from 0 to count - 1. ``order`` has the indices of ``keys``,
    sorted by key. ``ends`` has for each key the end of its indices in ``order``."""
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
    """Return the row of each item, and the number of rows. Sizes are 1 .. context. An item goes
    into the row with the least room in which it fits, and among equals into the one filled last.
    Rows with the same room form a linked list. A binary tree marks the sizes of room that occur."""
    leaves = 1
    while leaves <= context:
        leaves *= 2
    occupied = np.zeros(2 * leaves, np.uint8)
    head = np.full(context + 1, -1, np.int64)
    next_row = np.empty(len(sizes), np.int64)
    rows = np.empty(len(sizes), np.int64)
    count = 0
    for index in range(len(sizes)):
        size = sizes[index]
        node = leaves + size
        if not occupied[node]:
            while node > 1 and (node & 1 or not occupied[node + 1]):
                node >>= 1
            if node > 1:
                node += 1
                while node < leaves:
                    node *= 2
                    if not occupied[node]:
                        node += 1
        if node > 1:
            free = node - leaves
            row = head[free]
            head[free] = next_row[row]
            if head[free] < 0:
                occupied[node] = 0
                while node > 1 and not (occupied[node] or occupied[node ^ 1]):
                    node >>= 1
                    occupied[node] = 0
        else:
            free, row = context, count
            count += 1
        rows[index] = row
        free -= size
        if free:
            next_row[row] = head[free]
            head[free] = row
            node = leaves + free
            while node and not occupied[node]:
                occupied[node] = 1
                node >>= 1
    return rows, count


@njit(cache=True, nogil=True)
def prefix_hashes(
    tokens: np.ndarray, start: np.ndarray, length: np.ndarray, prefix: int, seed: np.uint64
) -> np.ndarray:
    """Return uint64 [documents]: a hash of ``seed``, a length and the first ``prefix`` tokens."""
    out = np.empty(len(start), np.uint64)
    for document in range(len(start)):
        hashed = seed ^ (np.uint64(length[document]) * np.uint64(0x9E3779B97F4A7C15))
        first = start[document]
        for position in range(first, first + min(prefix, length[document])):
            hashed = (hashed ^ np.uint64(tokens[position])) * np.uint64(0xBF58476D1CE4E5B9)
            hashed ^= hashed >> np.uint64(29)
        hashed *= np.uint64(0x94D049BB133111EB)
        out[document] = hashed ^ (hashed >> np.uint64(31))
    return out
