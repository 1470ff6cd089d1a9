"""Connected components of documents that share a bucket, and the partner of each document.

A component is a tree of uint32 parents, four bytes a node, whose root is the least node. Union is
by the lesser number and find halves paths; so a parent is never greater than its child, and one
ascending pass makes every parent a root.

Without verification documents that share a bucket match: each bucket is a star around its most
preferred member. A document's partner is, of the documents it is in a star with, the one it shares
most stars with. Pairs are counted in partitions on disk; a candidate costs a parent, a partner and
a count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.buckets import bucket_files, chunks
from curate.corpus.shuffle.byte_rows import count_up, new_array
from curate.corpus.shuffle.partitions import (
    PairFiles,
    PartitionWriter,
    partition_bits,
    read_partitions,
)
from curate.corpus.sizes import Sizes
from llmcurate.base.disk.files import TEMPORARY
from llmcurate.base.kernels import njit

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


ROOTS, PARTNERS, SHARED = "roots.u32", "partners.u32", "shared.u16"
SIMILARITY = "similarity.f64"
# Odd, so that multiplying by it can be undone; Knuth's, for 64 bits. Its high bits are even among
# pairs, while those of (document, partner) would put one large bucket into one partition.
SPREAD = 0x9E3779B97F4A7C15
GATHER = pow(SPREAD, -1, 2**64)


@njit(cache=True, nogil=True)
def star_pairs(members, sizes, parent, forward, spread):
    """uint64: (document, other) as document * 2^32 + other, times `spread`, of every member of a
    bucket and its head, the first one; unless `forward`, the other way round too, and their trees
    in `parent` are joined."""
    out = np.empty((1 if forward else 2) * max(len(members) - len(sizes), 0), np.uint64)
    filled = 0
    begin = np.int64(0)
    for size in sizes:
        head = np.uint64(members[begin])
        for i in range(begin + 1, begin + size):
            k = np.uint64(members[i])
            out[filled] = ((k << np.uint64(32)) | head) * spread
            filled += 1
            if not forward:
                out[filled] = ((head << np.uint64(32)) | k) * spread
                filled += 1
                union(parent, members[i], members[begin])
        begin += size
    return out


@njit(cache=True, nogil=True)
def take_best(keys, gather, partner, weight):
    """Makes partner[k] the one that k forms most pairs with, of these and those before; of equals
    the lesser. keys: sorted pairs as star_pairs makes them, all of a pair together."""
    begin = 0
    for i in range(1, len(keys) + 1):
        if i < len(keys) and keys[i] == keys[begin]:
            continue
        pair = keys[begin] * gather
        k, other = np.int64(pair >> np.uint64(32)), np.uint32(pair & np.uint64(0xFFFFFFFF))
        count = i - begin
        if count > weight[k] or (count == weight[k] and other < partner[k]):
            partner[k] = other
            weight[k] = count
        begin = i


@njit(cache=True, nogil=True)
def count_shared(members, sizes, partner, shared):
    """Adds to shared[k] the buckets that hold both k and its partner. Members ascend."""
    begin = np.int64(0)
    for size in sizes:
        for i in range(begin, begin + size):
            k = members[i]
            p = partner[k]
            low, high = begin, begin + size
            while low < high:
                middle = (low + high) // 2
                if members[middle] < p:
                    low = middle + 1
                else:
                    high = middle
            if low < begin + size and members[low] == p:
                shared[k] += 1
        begin += size


def write_stars(
    folder: Path, ordered: Path, candidates: int, members: int, first: bool, sizes: Sizes
) -> dict[str, Any]:
    """Phase `edges`: root, partner and shared buckets of each k. members: of all buckets; first:
    only to more preferred documents, and each document goes with its partner alone."""
    parent, partner = (
        new_array(candidates, np.uint32, folder, sizes.mapped_bytes) for _ in range(2)
    )
    count_up(parent)
    spread, gather = np.uint64(SPREAD), np.uint64(GATHER)
    scratch = folder.with_name(f"{TEMPORARY}scratch")
    scratch.mkdir(exist_ok=True)
    files, buckets = PairFiles.within(scratch), bucket_files(ordered, 1)
    bits = partition_bits(members, sizes.partition_pairs)
    writer = PartitionWriter(files, bits, sizes.segment_pairs, valued=False)
    for bucket_members, counts in chunks(buckets, sizes.bucket_members):
        writer.add(star_pairs(bucket_members, counts, parent, first, spread))
    writer.close()
    partner[:] = NONE
    weight = new_array(candidates, np.uint16, folder, sizes.mapped_bytes)
    weight[:] = 0
    for part in range(1 << writer.bits):
        (((keys,), _),) = read_partitions(
            [files], part, part + 1, scratch, sizes.mapped_bytes, valued=False
        )
        keys.sort()
        take_best(keys, gather, partner, weight)
    for path in scratch.iterdir():
        path.unlink()
    scratch.rmdir()
    if first:
        follow(parent, partner)
    flatten(parent)
    clear_roots(parent, partner)
    shared = weight
    shared[:] = 0
    for bucket_members, counts in chunks(buckets, sizes.bucket_members):
        count_shared(bucket_members, counts, partner, shared)
    parent.tofile(folder / ROOTS)
    partner.tofile(folder / PARTNERS)
    shared.tofile(folder / SHARED)
    return {}
