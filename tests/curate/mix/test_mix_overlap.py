"""Overlaps of sources: exact texts, near copies, keys out of a dedup's index."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.mix.overlap import connected
from curate.mix.overlap import overlap as figures

WORDS = [a + b + c for a in "bdfglm" for b in "aeiou" for c in "nrst"]


def documents(name, seeds, changed=0):
    """Sixty words drawn from each seed, the last of them changed."""
    rows = []
    for seed in seeds:
        words = random.Random(seed).choices(WORDS, k=60)
        words[60 - changed :] = [f"{name}{i}" for i in range(changed)]
        rows.append({"id": f"{name}-{seed}", "text": " ".join(words)})
    return rows


@pytest.fixture(scope="module")
def bench(shared_bench):
    shared_bench.jsonl("a.jsonl", documents("a", range(40)))
    shared_bench.jsonl("b.jsonl", [*documents("b", range(30, 60), 3), *documents("c", [59], 2)])
    shared_bench.run(["dedup_minhash"], shared_bench.folder / "a.jsonl", out="kept")
    return shared_bench


def overlap(bench, out, overlap="minhash", **sources):
    given_ = {name: str(bench.folder / path) for name, path in sources.items()}
    step = {"mix": {"sources": given_, "unit": "documents", "overlap": overlap}}
    return bench.run([step], out=out).products[0]["mix"].get("overlap")


def test_near_duplicates_in_another_source_and_the_mix_without_them_are_counted(bench):
    shared = overlap(bench, "near", a="a.jsonl", b="b.jsonl")
    assert shared["documents"] == [[0, 10], [10, 1]]
    assert shared["unique_documents"] == 60 and shared["from_index"] == []


def test_of_near_duplicates_the_largest_counts_as_kept(tmp_path):
    """Of a three copies and a text of its own, of b one copy; the mix takes two of them."""
    rows, bands = tmp_path / "rows.parquet", tmp_path / "bands.parquet"
    columns = {"grp": [0, 0, 0, 0, 1], "hash": [1, 2, 3, 4, 5], "size": [4, 8, 2, 16, 32]}
    pq.write_table(pa.table(columns | {"taken": [True, False, False, False, True]}), rows)
    pq.write_table(pa.table({"row": [0, 1, 2, 4], "key": [7, 7, 7, 7]}), bands)
    shared = figures(rows, ["a", "b"], bands)
    assert shared.documents == [[2, 3], [1, 0]]
    assert shared.size == [[4 + 2, 4 + 8 + 2], [32, 0]]
    assert (shared.unique_documents, shared.unique) == (1, 32)


def test_the_index_of_a_dedup_gives_the_same_figures_without_sketching(bench, monkeypatch):
    plain = overlap(bench, "plain", a="kept/corpus", b="b.jsonl")
    from curate.dedup.minhash.near_duplicates import DedupMinhash

    sketched = DedupMinhash.signatures
    rows = []
    monkeypatch.setattr(
        DedupMinhash,
        "signatures",
        lambda self, text: rows.append(len(text)) or sketched(self, text),
    )
    kept = overlap(bench, "indexed", a="kept", b="b.jsonl")
    assert kept == plain | {"from_index": ["a"]}
    assert sum(rows) == 31 and kept["not_in_index"] == {}


def test_without_near_duplicates_only_exact_texts_count(bench):
    assert overlap(bench, "exact", "exact", a="a.jsonl", b="b.jsonl")["documents"] == [
        [0, 0],
        [0, 0],
    ]
    assert overlap(bench, "none", "none", a="a.jsonl", b="b.jsonl") is None


def test_texts_are_compared_by_the_keys_of_exact_dedup():
    from curate.dedup.hashes import digests
    from curate.mix.measure import text_hashes

    texts = [b"", b"a", "ไทย".encode(), b"x" * 5000]
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)])
    assert np.array_equal(text_hashes(data, offsets), digests(data, offsets, "xxh3-128"))


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
