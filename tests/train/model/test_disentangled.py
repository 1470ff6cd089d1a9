"""Disentangled attention: against a loop over pairs of tokens, and against itself elsewhere."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change
from tests.train.model.variants import LATENT, SHAPE
from train.attention import Mask, attend
from train.config import TrainConfig
from train.loop.distributed import check_split
from train.measure.accounting import attention_flops
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.encodings.disentangled import DisentangledAttention, DistanceVectors
from train.model.layers import View

CONFIG = change(
    SHAPE,
    {"position": "disentangled", "position.span": 4, "causal": False, "attention.bias": "all"},
    "model",
)
KINDS = {
    "plain": {},
    "shared": {"position.shared": True, "position.norm": True},
    "no bias of keys": {"attention.bias": "but_keys", "attention.kv_heads": 4},
    "buckets": {"position.span": 9, "position.buckets": 4},
    "causal": {"causal": True},
}


def build(config: ModelConfig) -> Decoder:
    model = Decoder(config, attention="eager").double().eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.5, generator=draw)
    return model


def row_of(distance: int, config: ModelConfig) -> int:
    """The row of a distance in the table, from the formulas of the paper and of DeBERTa-v2."""
    span, buckets = config.position.span, config.position.buckets
    if buckets is None:
        return min(max(distance + span, 0), 2 * span - 1)
    middle, away = buckets // 2, abs(distance)
    if away > middle:
        steps = math.log(away / middle) / math.log((span - 1) / middle) * (middle - 1)
        distance = int(math.copysign(middle + math.ceil(steps - 1e-9), distance))
    return min(max(distance + buckets, 0), 2 * buckets - 1)


def pair_by_pair(attention: DisentangledAttention, table, x, config: ModelConfig):
    """x [length, hidden] to the same, by equation 4 of the paper for each pair of tokens."""
    own, length = config.attention, len(x)
    size, times = own.head_dim, own.heads // own.kv_heads
    position_key = attention.position_key or attention.key
    position_query = attention.position_query or attention.query
    out = torch.zeros(length, own.heads * size, dtype=x.dtype)
    for head in range(own.heads):
        here = slice(head * size, (head + 1) * size)
        kv = slice(head // times * size, (head // times + 1) * size)
        for i in range(length):
            seen = range(i + 1 if config.causal else length)
            scores = []
            for j in seen:
                vector = table[row_of(i - j, config)]
                query, key = attention.query(x[i])[here], attention.key(x[j])[kv]
                score = query @ key + query @ position_key(vector)[kv]
                scores.append((score + key @ position_query(vector)[here]) / math.sqrt(3 * size))
            weights = torch.stack(scores).softmax(0)
            values = torch.stack([attention.value(x[j])[kv] for j in seen])
            out[i, here] = weights @ values
    return attention.out(out)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_scores_are_those_of_the_paper_for_each_pair_of_tokens(kind):
    config = change(CONFIG, KINDS[kind], "model")
    model = build(config)
    positions, attention = model.stack.positions, model.stack.blocks[0].attention
    x = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = Mask(queries=9, keys=9, device=x.device, causal=config.causal, content=True)
    ours = attention(x, View(mask=mask, relation=positions.relation(mask)))
    table = positions.norm(positions.weight)
    for row, mixed in zip(x, ours, strict=True):
        assert torch.allclose(pair_by_pair(attention, table, row, config), mixed, atol=1e-10)


@torch.no_grad()
def test_distances_are_those_within_documents():
    model = build(CONFIG)
    ids = torch.randint(61, (1, 12), generator=torch.Generator().manual_seed(0))
    documents = torch.tensor([[0] * 7 + [1] * 5])
    both = model(ids, documents=documents)
    alone = torch.cat([model(ids[:, :7]), model(ids[:, 7:])], dim=1)
    assert torch.allclose(both, alone, atol=1e-10)


@torch.no_grad()
def test_only_order_and_distance_of_positions_matter():
    model = build(CONFIG)
    ids = torch.randint(61, (1, 12), generator=torch.Generator().manual_seed(0))
    later = torch.cat([ids[:, :4] * 0 + 3, ids], dim=1)
    documents = torch.tensor([[0] * 4 + [1] * 12])
    assert torch.allclose(model(later, documents=documents)[:, 4:], model(ids), atol=1e-10)
    assert not torch.allclose(model(ids.flip(1)).flip(1), model(ids), atol=1e-3)


@given(st.integers(4, 40), st.integers(0, 60), st.integers(-700, 700))
def test_buckets_grow_with_the_distance_and_end_with_the_span(buckets, more, distance):
    span = 2 * buckets + more
    changes = {"position.span": span, "position.buckets": buckets}
    positions = DistanceVectors(change(CONFIG, changes, "model"))
    found = positions.bucket(torch.arange(-abs(distance) - 1, abs(distance) + 2))
    assert (found.diff() >= 0).all() and torch.equal(found, -found.flip(0))
    assert (found.abs() <= torch.arange(-abs(distance) - 1, abs(distance) + 2).abs()).all()
    assert int(positions.bucket(torch.tensor([span - 1]))) == 2 * (buckets // 2) - 1


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_back_ends_add_the_scores_of_a_layer(backend):
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 7, 8, generator=draw, dtype=torch.float64)
    added = torch.randn(2, 4, 7, 7, generator=draw, dtype=torch.float64)
    documents = torch.tensor([[0] * 3 + [1] * 4, [0] * 7])
    mask = Mask(queries=7, keys=7, device=q.device, documents=documents, content=True)
    out = attend(q, k, v, mask, backend, added)
    scores = q @ k.transpose(-2, -1) * 8**-0.5 + added
    seen = torch.ones(7, 7).tril().bool() & (documents[:, :, None] == documents[:, None])
    plain = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1) @ v
    assert torch.allclose(out, plain, atol=1e-12)


def test_costs_have_the_products_with_the_vectors():
    plain = change(CONFIG, {"position": "none"}, "model")
    beside = attention_flops(CONFIG, 32) - attention_flops(plain, 32)
    assert beside == 2 * 2 * (4 * 8) * 8 * CONFIG.layers  # two products, eight vectors


def test_settings_incompatible_with_disentangled_attention_are_a_one_line_error():
    for changes, message in (
        ({"attention": LATENT}, "attention latent with position disentangled"),
        ({"position.buckets": 20}, r"position\.buckets is 20: set position\.span to twice"),
    ):
        with pytest.raises(LlmcurateError, match=message):
            change(CONFIG, changes, "model")
    with pytest.raises(LlmcurateError, match="tensor 2 with position disentangled"):
        check_split(CONFIG, dataclasses.replace(TrainConfig(), tensor=2))
    mask = Mask(queries=2, keys=2, device=torch.device("cpu"), content=True)
    with pytest.raises(LlmcurateError, match="flex does not support the mask content"):
        attend(*torch.zeros(3, 1, 1, 2, 8), mask, "flex", torch.zeros(1, 1, 2, 2))
