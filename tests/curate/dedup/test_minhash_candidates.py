"""Candidates by number: bits, ids, positions in order of preference, and the forest over them."""

from __future__ import annotations

import numpy as np
import pytest

from curate.corpus.shuffle import buckets as shuffle_candidates
from curate.dedup.minhash.clusters import Ids
from curate.dedup.minhash.kernels import (
    NONE,
    clear_roots,
    flatten,
    follow,
    members_of_two,
    renumber,
)


@pytest.mark.parametrize("seed", range(5))
def test_a_forest_is_flat_with_the_least_node_as_root(seed):
    draw = np.random.default_rng(seed)
    partner = np.full(40, NONE, np.uint32)
    for x in range(1, 40):
        if draw.random() < 0.7:
            partner[x] = draw.integers(0, x)
    parent = np.arange(40, dtype=np.uint32)
    follow(parent, partner)
    flatten(parent)
    for x in range(40):
        y = x
        while partner[y] != NONE:
            y = int(partner[y])
        assert parent[x] == y
    bits = members_of_two(parent)
    several = {x for x in range(40) if (parent == parent[x]).sum() > 1}
    assert {x for x in range(40) if bits[x >> 6] >> np.uint64(x & 63) & np.uint64(1)} == several
    clear_roots(parent, partner)
    assert all(partner[x] == NONE for x in range(40) if parent[x] == x)


def test_ids_are_found_by_number(tmp_path):
    names = ["ä", "", "bc", "d" * 300]
    data = [n.encode() for n in names]
    (tmp_path / "ids.utf8").write_bytes(b"".join(data))
    np.cumsum([0, *map(len, data)]).astype(np.int64).tofile(tmp_path / "ids.i64")
    ids = Ids(tmp_path)
    which = np.array([3, 0, NONE, 1, 2, 0], np.uint32)
    assert ids.of(which).to_pylist() == [names[3], "ä", "", "", "bc", "ä"]
    assert ids.of(which[:0]).to_pylist() == []


@pytest.mark.parametrize("seed", range(3))
def test_bits_are_counted_and_listed(seed):
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 2**64, 5, np.uint64)
    bits[1], bits[2] = 0, np.uint64(2**64 - 1)
    plain = [i for i in range(320) if int(bits[i // 64]) >> (i % 64) & 1]
    before = shuffle_candidates.ones_before(bits)
    assert before.tolist() == [sum(i < 64 * w for i in plain) for w in range(6)]
    for first, stop in ((0, 320), (3, 3), (70, 200), (319, 320)):
        listed = shuffle_candidates.set_bits(bits, first, stop) + first
        assert listed.tolist() == [i for i in plain if first <= i < stop]


def test_buckets_are_rewritten_in_order_of_preference():
    bits = np.array([0b1101, 1 << 63], np.uint64)  # documents 0, 2, 3 and 127
    order = np.array([2, 0, 3, 1], np.uint32)
    members = np.array([0, 3, 127, 0, 2, 2, 3, 127], np.uint32)
    sizes = np.array([3, 2, 3], np.uint32)
    renumber(members, sizes, bits, shuffle_candidates.ones_before(bits), order)
    assert members.tolist() == [1, 2, 3, 0, 2, 0, 1, 3]
