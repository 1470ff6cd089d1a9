"""Verification in parts of any size decides the same as one process over all buckets."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.shuffle.buckets import BITS, bucket_files, ones_before
from curate.corpus.shuffle.byte_rows import SliceFiles, SliceWriter
from curate.corpus.sizes import Sizes
from curate.corpus.sketches import run_here
from curate.dedup.minhash.clusters import (
    BEGINS,
    KIND,
    PARTNERS,
    POSITIONS,
    ROOTS,
    SIMILARITY,
    Verification,
    parts_of,
    write_matches,
    write_parts,
)
from curate.dedup.minhash.kernels import (
    NONE,
    Compared,
    clear_roots,
    flatten,
    for_kernels,
    join_buckets,
    keep_best,
    match_buckets,
    order_by_part,
    part_components,
)

WIDTH = 12  # bytes of a fingerprint


def bucket_lists(documents: int) -> st.SearchStrategy[list[list[int]]]:
    """Buckets over fewer documents than there might be, so that some join and some do not."""
    bucket = st.lists(st.integers(0, documents - 1), min_size=2, max_size=5, unique=True)
    return st.lists(bucket.map(sorted), max_size=14)


def in_arrays(buckets: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    members = np.array([d for b in buckets for d in b], np.uint32)
    return members, np.array([len(b) for b in buckets], np.uint32)


class Corpus:
    """Candidates 0, 1, ... with buckets, sets and signatures drawn by a seed, in files."""

    def __init__(self, folder: Path, buckets: list[list[int]], seed: int) -> None:
        self.folder, draw = folder, np.random.default_rng(seed)
        members = sorted({d for bucket in buckets for d in bucket})
        self.buckets, self.count = buckets, len(members)
        bits = np.zeros(4, np.uint64)
        for d in members:
            bits[d // 64] |= np.uint64(1 << (d % 64))
        bits.tofile(folder / BITS)
        for array, path in zip(in_arrays(buckets), bucket_files(folder, 1)[0], strict=True):
            array.tofile(path)
        self.order = draw.permutation(self.count).astype(np.uint32)
        self.in_k = [
            sorted(int(self.order[members.index(d)]) for d in bucket) for bucket in buckets
        ]
        # By c. Few values, so that similarities of any size and equal ones are found.
        self.sets = [
            np.flatnonzero(draw.random(5) < 0.6).astype(np.uint64) for _ in range(self.count)
        ]
        copied = draw.integers(0, max(1, self.count), self.count)
        drawn = draw.integers(0, 256, (self.count, WIDTH)).astype(np.uint8)
        self.packed = np.where(draw.random((self.count, WIDTH)) < 0.7, drawn[copied], drawn)

    def whole(self, least: float, first: bool, bits: int, most: int) -> list[np.ndarray]:
        """Root, partner and similarity by k, as one process finds them over all buckets."""
        by_k = np.argsort(self.order)
        lengths = np.array([len(self.sets[c]) for c in by_k], np.int64)
        extents = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1).reshape(-1, 2)
        values = np.concatenate([np.empty(0, np.uint64), *(self.sets[c] for c in by_k)])
        by = Compared(values, extents, np.empty((0, 0), np.uint8))
        if bits:
            extents[:, 0] = np.arange(self.count)
            by = Compared(values[:0], extents, self.packed[by_k])
        parent = np.arange(self.count, dtype=np.uint32)
        partner, best = np.full(self.count, NONE, np.uint32), np.zeros(self.count)
        edges = match_buckets(*in_arrays(self.in_k), for_kernels(by), least, first, most, parent)
        keep_best(*edges, first, partner, best)
        flatten(parent)
        clear_roots(parent, partner)
        return [parent, partner, best]

    def in_parts(
        self, size: int, least: float, first: bool, bits: int, most: int
    ) -> list[np.ndarray]:
        """The same by parts of about `size` candidates."""
        folder, order = self.folder, self.folder / "order"
        self.order.tofile(order)
        sizes = Sizes(part_candidates=size, matched_members=3)
        parts = write_parts(folder, folder, 1, self.order, sizes)["parts"]
        position, begins = (
            np.fromfile(folder / POSITIONS, np.uint32),
            np.fromfile(folder / BEGINS, int),
        )
        cuts = [0, self.count // 3, self.count]  # two groups of sketches
        for group, (start, stop) in enumerate(pairwise(cuts)):
            writer = SliceWriter(SliceFiles.within(folder, KIND, group), parts, sizes.segment_bytes)
            for c in range(start, stop):
                data = self.packed[c] if bits else self.sets[c].view(np.uint8)
                header = np.array([[position[c], len(data)]], np.uint32)
                offsets = np.array([0, len(data)])
                writer.add(parts_of(position[c : c + 1], begins), header, offsets, data)
            writer.close()
        by = Verification(WIDTH if bits else 0, least, first, most)
        write_matches(folder, run_here, folder, order, folder, 2, by, sizes)
        names = ((ROOTS, np.uint32), (PARTNERS, np.uint32), (SIMILARITY, np.float64))
        return [np.fromfile(folder / name, dtype) for name, dtype in names]


@given(
    bucket_lists(30),
    st.integers(0, 99),
    st.sampled_from([1, 4, 9, 100]),
    st.booleans(),
    st.sampled_from([0, 4]),
    st.sampled_from([1, 2, 1000]),
)
@settings(max_examples=100, deadline=None)
def test_parts_decide_what_one_process_does(buckets, seed, size, first, bits, most):
    with tempfile.TemporaryDirectory() as name:
        corpus = Corpus(Path(name), buckets, seed)
        want = corpus.whole(0.5, first, bits, most)
        decided = corpus.in_parts(size, 0.5, first, bits, most)
        assert [x.tolist() for x in decided] == [x.tolist() for x in want]


@given(bucket_lists(100), st.integers(0, 9), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_parts_hold_whole_components_and_no_more_than_they_may(buckets, seed, most):
    documents = sorted({d for bucket in buckets for d in bucket})
    bits = np.zeros(2, np.uint64)
    for d in documents:
        bits[d // 64] |= np.uint64(1 << (d % 64))
    count = len(documents)
    parent = np.arange(count, dtype=np.uint32)
    join_buckets(*in_arrays(buckets), bits, ones_before(bits), parent)
    flatten(parent)
    label = list(range(count))
    for bucket in buckets:
        labels = {label[documents.index(d)] for d in bucket}
        label = [min(labels) if x in labels else x for x in label]
    assert parent.tolist() == label
    part = np.empty(count, np.uint32)
    begins = part_components(parent, most, part)
    held = defaultdict(list)
    for c in range(count):
        assert part[c] == part[label[c]]
        held[int(part[c])].append(c)
    sizes = [len(held[p]) for p in range(len(begins) - 1)]
    assert begins.tolist() == [sum(sizes[:p]) for p in range(len(begins))]
    for members in held.values():
        assert len(members) <= most or len({label[c] for c in members}) == 1
    order = np.random.default_rng(seed).permutation(count).astype(np.uint32)
    position = np.empty(count, np.uint32)
    order_by_part(order, part, begins, np.empty(count, np.uint32), position)
    want = sorted(range(count), key=lambda c: (part[c], order[c]))
    assert np.argsort(position).tolist() == want
