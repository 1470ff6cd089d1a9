"""Masks of Longformer and BigBird, against loops over queries and keys."""

from __future__ import annotations

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from tests.train.attention.cases import case, untraced
from train.attention import Mask, attend, positions_of
from train.attention.choice import choose
from train.attention.mask import random_blocks

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

LENGTH = 24
ONE = torch.zeros(2, LENGTH, dtype=torch.long)
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 16 + [2] * 3, [4] * 23 + [-1]])
PATTERNS = {
    "dilated": {"window": 3, "dilations": (2, 2, 2, 2)},
    "dilated by head": {"window": 3, "dilations": (1, 2, 1, 4), "sinks": 2},
    "causal, dilated": {"window": 3, "dilations": (1, 1, 2, 3), "causal": True, "sinks": 1},
    "longformer": {"window": 3, "globals": 2},
    "longformer, dilated": {"window": 2, "globals": 1, "dilations": (1, 1, 3, 3)},
    "random": {"window": 2, "random": 2, "draw": 7},
    "blocks": {"window": 2, "block": 3},
    "bigbird": {"window": 2, "globals": 1, "random": 1, "block": 2, "draw": 3},
}


def mask(documents, queries=LENGTH, **more):
    positions = positions_of(documents)
    kind = {"causal": False} | more
    return Mask(
        queries=queries,
        keys=LENGTH,
        device=torch.device("cpu"),
        documents=documents,
        positions=positions,
        **kind,
    )


def sees(row, own, key, head, kind):
    """Whether the query at ``own`` sees the key, both by their index in the row."""
    if row[own] != row[key] or (kind.get("causal") and key > own):
        return False
    begin, count = row.index(row[own]), row.count(row[own])
    size = kind.get("block", 1)
    query_block, key_block = (own - begin) // size, (key - begin) // size
    away = abs(query_block - key_block)
    step = kind.get("dilations", (1,) * 4)[head]
    if away in range(0, kind["window"] * step, step):
        return True
    first = kind.get("globals", 0)
    if query_block < first or key_block < first or key - begin < kind.get("sinks", 0):
        return True
    blocks = -(-count // size)
    drawn = kind.get("random", 0)
    chosen = random_blocks(blocks, kind["window"], first, drawn, kind.get("draw", 0))
    return key_block in chosen[blocks, query_block].tolist()


@pytest.mark.parametrize("documents", [ONE, DOCUMENTS], ids=["one document", "documents"])
@pytest.mark.parametrize("kind", PATTERNS.values(), ids=PATTERNS)
def test_each_pattern_shows_a_query_the_keys_of_a_plain_loop(documents, kind):
    dense = mask(documents, **kind).dense.expand(2, 4, LENGTH, LENGTH)
    for row, ids in enumerate(documents.tolist()):
        for head in range(4):
            for own in range(LENGTH):
                seen = [key for key in range(LENGTH) if sees(ids, own, key, head, kind)]
                assert dense[row, head, own].nonzero()[:, 0].tolist() == seen


@pytest.mark.parametrize("backend", ["sdpa", "flex"])
@pytest.mark.parametrize("documents", [ONE, DOCUMENTS], ids=["one document", "documents"])
@pytest.mark.parametrize("kind", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("queries", [LENGTH, 5])
def test_back_ends_agree_with_eager(monkeypatch, backend, documents, kind, queries):
    if documents is ONE or queries == 5:
        untraced(monkeypatch)
    q, k, v = case(queries=queries, keys=LENGTH)
    spec = mask(documents, queries, **kind)
    expected = attend(q, k, v, spec, "eager")
    torch.testing.assert_close(attend(q, k, v, spec, backend), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", PATTERNS.values(), ids=PATTERNS)
def test_a_part_of_the_queries_sees_what_it_sees_among_all(kind):
    whole = mask(DOCUMENTS, **kind)
    part = whole.of_queries(4, 15)
    assert torch.equal(part.dense, whole.dense[:, :, 4:15, : part.keys])


def test_random_blocks_are_others_than_the_window_and_the_first_as_many_as_there_are():
    table = random_blocks(12, 2, 1, 3, 5)
    for blocks in range(1, 13):
        for own in range(blocks):
            free = {key for key in range(1, blocks) if abs(own - key) >= 2} if own else set()
            drawn = [key for key in table[blocks, own].tolist() if key >= 0]
            assert len(drawn) == len(set(drawn)) == min(3, len(free)) and free >= set(drawn)


def test_random_blocks_follow_from_the_draw_and_not_from_the_length_of_the_row():
    assert torch.equal(random_blocks(20, 2, 1, 3, 5)[:13, :12], random_blocks(12, 2, 1, 3, 5))
    assert not torch.equal(random_blocks(12, 2, 1, 3, 6), random_blocks(12, 2, 1, 3, 5))


def test_triton_refuses_patterns_and_auto_takes_another():
    spec = mask(ONE, window=2, globals=1)
    with pytest.raises(LlmcurateError, match="triton does not support the mask pattern"):
        attend(*case(queries=LENGTH, keys=LENGTH), spec, "triton")
    assert choose(case()[0], spec).backend == "sdpa"
