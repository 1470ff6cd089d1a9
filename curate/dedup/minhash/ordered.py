"""Buckets in terms of k, a candidate's place in the order in which copies are preferred.

All that follows is in terms of k, so it does not depend on the order of the input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from curate.corpus.shuffle.buckets import bucket_files, chunks
from curate.corpus.shuffle.candidates import BITS, number_of, ones_before
from kernel_cache import njit

SMALL = 24  # members that are sorted by insertion


@njit(cache=True, nogil=True)
def renumber(members, sizes, bits, before, order):
    """Members, document numbers, become order[c] in place, ascending within their buckets."""
    begin = np.int64(0)
    for size in sizes:
        for i in range(begin, begin + size):
            members[i] = order[number_of(members[i], bits, before)]
        if size > SMALL:
            members[begin : begin + size].sort()
        else:
            for i in range(begin + 1, begin + size):
                k, j = members[i], i
                while j > begin and members[j - 1] > k:
                    members[j] = members[j - 1]
                    j -= 1
                members[j] = k
        begin += size


def write_ordered(folder: Path, buckets: Path, pieces: int, order: np.ndarray) -> dict[str, Any]:
    """Phase `ordered`: the same buckets in terms of k, in one piece. order: uint32[candidates], k
    of each c."""
    bits = np.fromfile(buckets / BITS, np.uint64)
    before = ones_before(bits)
    ((members_path, sizes_path),) = bucket_files(folder, 1)
    with members_path.open("wb") as members, sizes_path.open("wb") as sizes:
        for mine, counts in chunks(bucket_files(buckets, pieces)):
            renumber(mine, counts, bits, before, order)
            members.write(mine.data)
            sizes.write(counts.data)
    return {}
