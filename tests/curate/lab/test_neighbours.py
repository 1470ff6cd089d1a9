"""Shards in which documents lie beside similar ones."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curate.lab.neighbours import walk
from curate.lab.semantic.matrix import whole_numbers
from curate.products.tokenizers import ShardsProduct

TOPICS = {
    topic: [f"{topic}{a}{b}" for a in "aeiou" for b in "nrstl"] for topic in ("sea", "law", "sun")
}
COMMON = "the a of and to in is that it for".split()


@pytest.fixture(scope="module")
def bench(shared_bench):
    draw = random.Random(2)
    rows = [
        {
            "id": f"{topic}-{n}",
            "text": " ".join(draw.choices(COMMON, k=30) + draw.choices(TOPICS[topic], k=30)),
        }
        for n in range(40)
        for topic in TOPICS
    ]
    shared_bench.jsonl("in.jsonl", rows)
    shared_bench.jsonl("turned.jsonl", rows[::-1])
    shared_bench.run([{"tokenizer": {"vocab": 300}}], shared_bench.folder / "in.jsonl", out="tok")
    return shared_bench


def encode(bench, out, source="in.jsonl", **settings):
    """(ids, tokens) of the documents in the shards, in their order."""
    shards = {"tokenizer": str(bench.folder / "tok"), **settings}
    bench.run([{"shards": shards}], bench.folder / source, out=out)
    table = pq.read_table(bench.folder / out / "documents-00000.parquet")
    return table["id"].to_pylist(), dict(
        zip(table["id"].to_pylist(), table["tokens"].to_pylist(), strict=True)
    )


def test_documents_of_a_topic_lie_together(bench):
    names, tokens = encode(bench, "near", packing="neighbours")
    topics = [name.partition("-")[0] for name in names]
    changes = sum(a != b for a, b in pairwise(topics))
    plain, same_tokens = encode(bench, "plain")
    assert changes <= 4 and sorted(names) == sorted(plain) and tokens == same_tokens


def test_the_order_does_not_depend_on_that_of_the_input(bench):
    names, _ = encode(bench, "straight", packing="neighbours")
    assert encode(bench, "other-way", "turned.jsonl", packing="neighbours")[0] == names


def test_both_sides_of_a_split_keep_the_neighbour_order(bench):
    whole, _ = encode(bench, "whole", packing="neighbours")
    train, _ = encode(bench, "split", packing="neighbours", val_fraction=0.3, val_by="id")
    held = pq.read_table(bench.folder / "split/val/documents-00000.parquet")["id"].to_pylist()
    assert [n for n in whole if n in set(train)] == train
    assert [n for n in whole if n in set(held)] == held and len(held) + len(train) == len(whole)


def test_a_shuffle_is_another_order(bench):
    with pytest.raises(ValidationError, match="leave shuffle out"):
        ShardsProduct(tokenizer="tok", packing="neighbours", shuffle=1)
    manifest = json.loads((bench.folder / "near/manifest.json").read_bytes())
    assert manifest["packing"] == "neighbours"


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 9))
def test_a_walk_visits_every_row_once_and_is_reproducible(count, leaf, seed):
    vectors = np.random.default_rng(seed).integers(0, 2, (count, 5))
    matrix = whole_numbers(vectors.astype(np.float32))
    path = walk(matrix, leaf)
    assert sorted(path.tolist()) == list(range(count))
    assert path.tolist() == walk(matrix.copy(), leaf).tolist()


def test_a_walk_in_parts_keeps_most_of_the_similarity_of_a_whole_walk():
    draw = np.random.default_rng(1)
    matrix = whole_numbers(
        draw.normal(size=(40, 16)).repeat(10, axis=0) + draw.normal(size=(400, 16)) / 5
    )

    def adjacent(order):
        rows = matrix[order].astype(np.int64)
        return float((rows[1:] * rows[:-1]).sum() / (len(rows) - 1)) / 4000**2

    parts, whole, any_order = (
        adjacent(walk(matrix, 32)),
        adjacent(walk(matrix, 400)),
        adjacent(draw.permutation(400)),
    )
    assert parts > 0.9 * whole > 5 * abs(any_order)
