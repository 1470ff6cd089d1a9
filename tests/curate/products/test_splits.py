"""Validation splits by cluster: near-duplicates lie on one side."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.products.splits import _draws, connected
from tokenize_kit.shards.shuffle import DocumentKeys, keys

WORDS = [a + b + c for a in "bdfglm" for b in "aeiou" for c in "nrst"]
VERSIONS = 3


def versions(count):
    """Documents of 200 random words, each in three versions that differ in their last words."""
    rows = []
    for page in range(count):
        words = random.Random(page).choices(WORDS, k=200)
        for version in range(VERSIONS):
            words[200 - version :] = [f"v{version}"] * version
            rows.append({"id": f"{page}-{version}", "text": " ".join(words)})
    return rows


@pytest.fixture(scope="module")
def bench(shared_bench):
    rows = versions(40)
    shared_bench.jsonl("in.jsonl", rows)
    shared_bench.jsonl("turned.jsonl", rows[::-1])
    shared_bench.run([{"tokenizer": {"vocab": 300}}], shared_bench.folder / "in.jsonl", out="tok")
    return shared_bench


def encode(bench, out, source="in.jsonl", before=(), **settings):
    """(validation ids, warnings) of a run that encodes shards."""
    shards = {"tokenizer": str(bench.folder / "tok"), "val_fraction": 0.3, **settings}
    outcome = bench.run([*before, {"shards": shards}], bench.folder / source, out=out)
    held = pq.read_table(bench.folder / out / "val/documents-00000.parquet")["id"].to_pylist()
    return held, outcome.products[-1]["warnings"]


def pages_of(ids):
    return {name.partition("-")[0] for name in ids}


def test_by_id_versions_of_a_page_are_on_both_sides_and_a_warning_says_so(bench):
    held, warnings = encode(bench, "by-id")
    assert len(held) < VERSIONS * len(pages_of(held))
    assert len(warnings) == 1 and "--val-by cluster" in warnings[0]
    assert encode(bench, "asked", val_by="id") == (held, [])


def test_by_cluster_all_versions_of_a_page_are_on_one_side(bench):
    held, warnings = encode(bench, "by-cluster", val_by="cluster")
    assert len(held) == VERSIONS * len(pages_of(held)) and 5 < len(pages_of(held)) < 25
    assert warnings == []


def test_the_split_by_cluster_does_not_depend_on_the_order_of_the_input(bench):
    held, _ = encode(bench, "straight", val_by="cluster")
    turned, _ = encode(bench, "other-way", "turned.jsonl", val_by="cluster")
    assert held == turned[::-1]


def test_the_index_of_a_dedup_beside_the_corpus_makes_it_the_default(bench, monkeypatch):
    # A dedup that keeps all but equal documents: what shares its bands is on one side.
    step = {"dedup_minhash": {"verify": 1.0}}
    held, warnings = encode(bench, "after", before=[step])
    assert warnings == [] and len(held) == VERSIONS * len(pages_of(held))
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    def refuse(self, text):
        raise AssertionError("the index has the bands")

    monkeypatch.setattr(DedupMinhash, "signatures", refuse)
    assert encode(bench, "later", "after/corpus") == (held, [])


def test_a_cluster_has_the_key_of_its_member_whose_scattered_key_is_least():
    member = np.array([9, 2, 7, 1, 4, 3], np.uint64)
    label = np.array([5, 0, 5, 0, 5, 0])

    def scattered(key):
        key = key * 0x9E3779B97F4A7C15 % 2**64
        return (key ^ key >> 29) * 0xBF58476D1CE4E5B9 % 2**64

    least = {0: min((2, 1, 3), key=scattered), 5: min((9, 7, 4), key=scattered)}
    assert list(least.values()) != [1, 4], "else the least key would do"
    for order in (np.arange(6), np.arange(6)[::-1], np.array([3, 0, 5, 1, 4, 2])):
        draws = _draws(member[order], label[order])
        assert draws.ids.tolist() == [1, 2, 3, 4, 7, 9]
        assert draws.values.tolist() == [least[0]] * 3 + [least[5]] * 3


def test_a_split_by_cluster_is_in_the_manifest_and_the_rest_as_it_was(bench):
    encode(bench, "named", val_by="cluster")
    encode(bench, "plain", val_by="id")
    folders = [bench.folder / out / "manifest.json" for out in ("named", "plain")]
    named, plain = (json.loads(path.read_bytes()) for path in folders)
    assert named["val_by"] == "cluster" and "val_by" not in plain


@settings(deadline=None)
@given(st.lists(st.text(max_size=4), max_size=20), st.integers(0, 2**64 - 1))
def test_ids_without_a_draw_fall_back_to_their_hash(names, value):
    ids = pa.chunked_array([pa.array(names, pa.string())])
    hashes = keys(ids)
    some = hashes[::2]
    draws = DocumentKeys.of_ids(some, np.full(len(some), value, np.uint64))
    wanted = np.where(np.isin(hashes, some), np.uint64(value), hashes)
    assert draws.of(ids).tolist() == wanted.tolist()


def by_walking(edges, many):
    """The reference: the least node of everything that can be reached."""
    near = defaultdict(set)
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    least = list(range(many))
    for start in range(many):
        seen, todo = {start}, [start]
        while todo:
            for node in near[todo.pop()] - seen:
                seen.add(node)
                todo.append(node)
        least[start] = min(seen)
    return least


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30))
def test_clusters_are_what_walking_from_document_to_document_finds(edges):
    a, b = (np.array([e[i] for e in edges], np.int64) for i in (0, 1))
    assert connected(a, b, 20).tolist() == by_walking(edges, 20)
