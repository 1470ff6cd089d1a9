"""Connected components as a forest: uint32 parents, the root is the least of its tree.

Four bytes a node. Union is by the lesser number and find halves paths; so a parent is never greater
than its child, and one ascending pass makes every parent a root.
"""

from __future__ import annotations

import numpy as np

from kernel_cache import njit

NONE = np.uint32(0xFFFFFFFF)


@njit(nogil=True)
def find(parent, x):
    """The root of x; paths are halved on the way."""
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


@njit(nogil=True)
def union(parent, x, y):
    """Joins the trees of x and y."""
    x, y = find(parent, x), find(parent, y)
    if x < y:
        parent[y] = x
    elif y < x:
        parent[x] = y


@njit(cache=True, nogil=True)
def flatten(parent):
    """Makes every parent the root, in place."""
    for x in range(len(parent)):
        parent[x] = parent[parent[x]]


@njit(cache=True, nogil=True)
def follow(parent, partner):
    """Makes the partner, where there is one, the parent, in place."""
    for x in range(len(parent)):
        if partner[x] != NONE:
            parent[x] = partner[x]


@njit(cache=True, nogil=True)
def clear_roots(root, partner):
    """The survivor of a component has no partner: in place. root: uint32, flat."""
    for x in range(len(root)):
        if root[x] == x:
            partner[x] = NONE


@njit(cache=True, nogil=True)
def members_of_two(root):
    """uint64 bits: the nodes of components of two or more. root: uint32, flat."""
    bits = np.zeros(len(root) // 64 + 1, np.uint64)
    for x in range(len(root)):
        r = root[x]
        if r != x:
            bits[x >> 6] |= np.uint64(1) << np.uint64(x & 63)
            bits[r >> np.uint32(6)] |= np.uint64(1) << np.uint64(r & np.uint32(63))
    return bits
