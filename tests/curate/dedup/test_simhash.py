"""SimHash: fingerprints and clusters equal a comparison of all bits of all pairs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.corpus.sizes import Sizes
from curate.dedup.minhash.kernels import fingerprints
from curate.dedup.simhash import DedupSimhash
from tests.curate.dedup.minhash_sketches import decide, rows_of, sketched, texts, write

hashes = st.integers(0, 2**64 - 1)


def test_a_bit_is_set_if_it_is_set_in_more_than_half_of_the_shingles() -> None:
    shingles = np.array([0b0111, 0b0011, 0b0001, 0b1011, 1 << 63], np.uint64)
    offsets = np.array([0, 3, 3, 5])
    assert fingerprints(offsets, shingles).tolist() == [0b0011, 0, 0]


@given(st.lists(st.lists(hashes, max_size=9), max_size=4))
def test_fingerprints_are_those_of_python(rows: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, rows)])
    shingles = np.array([value for row in rows for value in row], np.uint64)
    want = [
        sum((2 * sum(value >> bit & 1 for value in row) > len(row)) << bit for bit in range(64))
        for row in rows
    ]
    assert fingerprints(offsets, shingles).tolist() == want


@pytest.mark.parametrize("distance", [0, 3, 5, 12])
@given(value=hashes, data=st.data())
@settings(deadline=None, max_examples=40)
def test_fingerprints_within_the_distance_share_the_blocks_of_a_table(
    distance: int, value: int, data: st.DataObject
) -> None:
    masks = DedupSimhash(max_distance=distance).masks()
    flips = data.draw(st.sets(st.integers(0, 63), max_size=distance))
    changed = value ^ sum(1 << bit for bit in flips)
    assert any((value ^ changed) & int(mask) == 0 for mask in masks)


def clusters(bits: list[int | None], distance: int) -> set[frozenset[int]]:
    """The connected components of two or more fingerprints that differ in few bits."""
    of = [{d} for d in range(len(bits))]
    for d, e in combinations(range(len(bits)), 2):
        a, b = bits[d], bits[e]
        if a is not None and b is not None and (a ^ b).bit_count() <= distance:
            joined = of[d] | of[e]
            for member in joined:
                of[member] = joined
    return {frozenset(members) for members in of if len(members) > 1}


def decided(folder: Path, step: DedupSimhash, contents: list[str], **options: Any) -> list[Any]:
    folder.mkdir()
    decide(folder, write(folder, sketched(step, contents)), step, **options)
    return rows_of(folder)


@pytest.mark.parametrize("distance", [0, 3, 9])
def test_clusters_are_those_of_all_pairs_for_any_memory(tmp_path: Path, distance: int) -> None:
    contents = texts(200)
    step = DedupSimhash(max_distance=distance, ngram=1)
    offsets, shingles = step.shingles(pa.array(contents, pa.large_string()))
    bits: list[int | None] = fingerprints(offsets, shingles).tolist()
    for d in np.flatnonzero(np.diff(offsets) == 0).tolist():
        bits[d] = None  # a text without words matches nothing
    names = [f"d{i * 7919 % 10**4:04d}" for i in range(len(contents))]
    want = {frozenset(names[d] for d in members) for members in clusters(bits, distance)}
    rows = decided(tmp_path / "a", step, contents)
    members: dict[int, set[str]] = {}
    for row in rows:
        members.setdefault(row["cluster"], set()).add(row["id"])
    assert set(map(frozenset, members.values())) == want and want
    size = {names[d]: len(text.encode()) for d, text in enumerate(contents)}
    for row in rows:
        longest = min(members[row["cluster"]], key=lambda name: (-size[name], name))
        assert row["kept_id"] == longest and row["drop"] == (row["id"] != longest)
        assert row["similarity"] is None or row["similarity"] >= 1 - distance / 32
    small = Sizes(part_candidates=20, bucket_members=16, task_documents=50)
    assert decided(tmp_path / "b", step, contents, sizes=small) == rows


def test_a_run_keeps_the_longest_of_each_cluster_whatever_the_worker_count(bench: Any) -> None:
    long = " ".join(f"word{i}" for i in range(400))
    rows = [
        {"id": "a", "text": long},
        {"id": "b", "text": f"{long} end"},
        {"id": "c", "text": "Another text altogether, about a mill by the river."},
        {"id": "d", "text": ""},
        {"id": "e", "text": ""},
    ]
    source = bench.jsonl("in.jsonl", rows)
    for workers in (1, 2):
        out = f"out{workers}"
        bench.run([{"dedup_simhash": {}}], source, out=out, workers=workers)
        assert bench.ids(out) == ["b", "c", "d", "e"]
        (reason,) = bench.rows(out, "rejected")[0]["reasons"]
        assert (reason["rule"], reason["detail"]) == ("near_duplicate", "b")
    assert bench.decisions("out1") == bench.decisions("out2")
