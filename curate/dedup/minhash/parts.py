"""What has to be verified, cut into parts that have nothing to do with each other.

Whether two documents are compared depends on what others of their buckets matched before. So it
depends on nothing outside the component that they are in when sharing a bucket counts as a match:
whole components are given to parts, and each part is a task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.arrays import count_up, load_array, new_array
from curate.corpus.shuffle.buckets import bucket_files, chunks
from curate.corpus.shuffle.byte_rows import SliceFiles, SliceWriter
from curate.corpus.shuffle.candidates import BITS, number_of, ones_before
from curate.dedup.minhash.forest import flatten, union
from curate.dedup.minhash.ordered import renumber
from kernel_cache import njit

PART = 100_000  # candidates of a part that are aimed at
MOST_PARTS = 4096  # of an even corpus; each part reads of every group of sketch files
PLACES, BEGINS = "places.u32", "begins.i64"


@njit(cache=True, nogil=True)
def join(members, sizes, bits, before, parent):
    """Joins the trees of the members of each bucket. members: document numbers; parent: uint32 by
    c, changed in place."""
    begin = np.int64(0)
    for size in sizes:
        head = np.uint32(number_of(members[begin], bits, before))
        for i in range(begin + 1, begin + size):
            union(parent, head, np.uint32(number_of(members[i], bits, before)))
        begin += size


@njit(cache=True, nogil=True)
def part_components(root, most, part):
    """int64[parts + 1]: before how many candidates each part begins. root: uint32 by c, flat;
    part: uint32 by c, made here: that of its component. Components fill parts in order of their
    roots; a part holds up to `most` candidates, or one component alone."""
    part[:] = 0
    for c in range(len(root)):
        part[root[c]] += 1
    sizes = [np.int64(0)]  # of the parts
    for c in range(len(root)):
        r = root[c]
        if r != c:
            part[c] = part[r]
            continue
        if sizes[-1] and sizes[-1] + part[c] > most:
            sizes.append(np.int64(0))
        sizes[-1] += part[c]
        part[c] = len(sizes) - 1
    begins = np.zeros(len(sizes) + 1, np.int64)
    for p in range(len(sizes)):
        begins[p + 1] = begins[p] + sizes[p]
    return begins


@njit(cache=True, nogil=True)
def place_candidates(order, part, begins, by_k, place):
    """Puts into place[c] the number of c when candidates are ordered by part, then by k = order[c].
    by_k: uint32 of any values."""
    following = begins.copy()
    for c in range(len(order)):
        by_k[order[c]] = c
    for k in range(len(order)):
        c = by_k[k]
        place[c] = following[part[c]]
        following[part[c]] += 1


def write_parts(
    folder: Path, buckets: Path, pieces: int, order: np.ndarray, most: int | None = None
) -> dict[str, Any]:
    """Phase `ordered` where matches are verified: the places of candidates by c, where each part
    begins among them, and the buckets in terms of places, a slice a part.

    order: uint32[candidates], k of each c. Within a part places are in the order of k, so all that
    is decided by the lesser of two k is decided by places as well.
    """
    count = len(order)
    most = max(most or PART, -(-count // MOST_PARTS))
    bits = load_array(buckets / BITS, np.uint64)
    before = ones_before(bits)
    files = bucket_files(buckets, pieces)
    place, begins = order, np.array([0, count])
    if count > most:
        parent = new_array(count, np.uint32, folder)
        count_up(parent)
        for members, sizes in chunks(files):
            join(members, sizes, bits, before, parent)
        flatten(parent)
        part, place = new_array(count, np.uint32, folder), new_array(count, np.uint32, folder)
        begins = part_components(parent, most, part)
        place_candidates(order, part, begins, parent, place)
    place.tofile(folder / PLACES)
    begins.tofile(folder / BEGINS)
    writer = SliceWriter(SliceFiles.within(folder, "buckets"), len(begins) - 1)
    for members, sizes in chunks(files):
        renumber(members, sizes, bits, before, place)
        ends = np.cumsum(sizes, dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        mine = parts_of(members[offsets[:-1]], begins)
        writer.add(mine, sizes[:, None], 4 * offsets, members.view(np.uint8))
    writer.close()
    return {"parts": len(begins) - 1}


def parts_of(places: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The part that each place is in."""
    return np.searchsorted(begins, places, "right") - 1
