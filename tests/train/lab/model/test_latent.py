"""Latent attention against the paper's equations, its small cache, and what it costs."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.settings import change, from_dict, to_dict
from tests.train.model.variants import LATENT, SHAPE
from train.lab.model.latent import EPS, LatentAttention
from train.measure.accounting import (
    attention_flops,
    cache_bytes,
    cache_bytes_per_token,
    flops_per_token,
    matmul_parameters,
    parameters,
    parts,
    sharing,
)
from train.measure.describe import decoding, find_gpu, serving
from train.model.attention_settings import Latent
from train.model.decoder import Decoder
from train.model.presets import preset

CONFIG = change(SHAPE, {"attention": LATENT | {"query_rank": 20}}, "model")


def built(config=CONFIG, *, spread: float = 2.0) -> Decoder:
    model = Decoder(config)
    model.initialise(0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(spread).add_(0.1 * torch.randn(weight.shape, generator=draw))
    return model.double().eval()


def rms(x, weight):
    return x / (x.square().mean() + EPS).sqrt() * weight


def turned(x, position, theta=10_000.0):
    """Dimension i with i + half, by position x theta ** (-2 i / dimensions)."""
    half = len(x) // 2
    out = x.clone()
    for i in range(half):
        angle = position * theta ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def by_the_paper(layer: LatentAttention, h: torch.Tensor) -> torch.Tensor:
    """DeepSeek-V2, equations 9 to 19 (appendix C, 37 to 47), token by token and head by head."""
    own = layer.own
    named = {name: weight.detach() for name, weight in layer.named_parameters()}
    up = named["up.weight"].unflatten(0, (own.heads, own.plain_dim + own.value_dim))
    queries, keys, values = [], [], []
    for position, token in enumerate(h):
        if own.query_rank is None:
            q = named["query.weight"] @ token
        else:
            c_q = rms(named["query_down.weight"] @ token, named["query_norm.weight"])
            q = named["query_up.weight"] @ c_q
        q = q.unflatten(0, (own.heads, own.head_dim))
        both = named["down.weight"] @ token
        c_kv = rms(both[: own.rank], named["norm.weight"])
        k_r = turned(both[own.rank :], position)
        for head in range(own.heads):
            q_c, q_r = q[head][: own.plain_dim], turned(q[head][own.plain_dim :], position)
            queries.append(torch.cat((q_c, q_r)))
            keys.append(torch.cat((up[head][: own.plain_dim] @ c_kv, k_r)))
            values.append(up[head][own.plain_dim :] @ c_kv)
    out = []
    for t in range(len(h)):
        heads = []
        for head in range(own.heads):
            q = queries[t * own.heads + head]
            scores = torch.stack([q @ keys[j * own.heads + head] for j in range(t + 1)])
            weights = (scores / math.sqrt(own.plain_dim + own.rotary_dim)).softmax(0)
            heads.append(sum(weights[j] * values[j * own.heads + head] for j in range(t + 1)))
        out.append(named["out.weight"] @ torch.cat(heads))
    return torch.stack(out)


@pytest.mark.parametrize("query_rank", [None, 20])
@torch.no_grad()
def test_latent_attention_computes_the_papers_equations(query_rank):
    model = built(change(CONFIG, {"attention.query_rank": query_rank}, "model"))
    seen = {}
    layer = model.stack.blocks[0].attention
    layer.register_forward_hook(lambda _, args, out: seen.update(x=args[0], out=out))
    model(torch.arange(9)[None])
    torch.testing.assert_close(seen["out"][0], by_the_paper(layer, seen["x"][0]))


@pytest.mark.parametrize("absorbs", [True, False])
@torch.no_grad()
def test_absorbed_decoding_is_the_unabsorbed(absorbs, monkeypatch):
    """The rule is by cost; both ways of it give what a pass over the whole text gives."""
    model, tokens = built(), torch.arange(24).reshape(2, 12)
    whole = model(tokens)
    monkeypatch.setattr(LatentAttention, "absorbs", lambda self, queries: absorbs)
    used = []
    for name in ("_absorbed", "_expanded"):
        plain = getattr(LatentAttention, name)
        monkeypatch.setattr(
            LatentAttention, name, lambda *a, n=name, f=plain: used.append(n) or f(*a)
        )
    cache = model.empty_cache()
    pieces = [model(tokens[:, :5], cache=cache)]
    pieces += [model(tokens[:, i : i + 1], cache=cache) for i in range(5, 12)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-9, atol=1e-9)
    assert set(used) == {"_absorbed" if absorbs else "_expanded"}


@torch.no_grad()
def test_padded_texts_of_a_batch_decode_as_alone():
    model, tokens = built(), torch.arange(10)[None]
    alone = model(tokens)
    padded = torch.cat((torch.full((1, 3), 7), tokens), dim=1)
    documents = torch.tensor([[-1] * 3 + [0] * 10])
    cache = model.empty_cache()
    first = model(padded[:, :8], documents=documents[:, :8], cache=cache)[:, 3:]
    rest = [
        model(padded[:, i : i + 1], documents=documents[:, i : i + 1], cache=cache)
        for i in range(8, 13)
    ]
    torch.testing.assert_close(torch.cat([first, *rest], dim=1), alone, rtol=1e-9, atol=1e-9)


def test_a_long_prompt_is_expanded_and_a_new_token_absorbed():
    with torch.device("meta"):
        config = dataclasses.replace(CONFIG, attention=Latent(heads=4))
        layer = LatentAttention(config, "auto")
    assert layer.absorbs(1)
    assert layer.absorbs(170)  # 512 x 256 operations to make a key's keys and values, 768 a query
    assert not layer.absorbs(171)


@torch.no_grad()
def test_the_cache_holds_the_compressed_vector_and_the_rotary_key_alone():
    model = Decoder(CONFIG)
    cache = model.empty_cache()
    model(torch.arange(64).reshape(1, 64) % 61, cache=cache)
    assert cache.bytes == 2 * 64 * (12 + 4) * 4  # layers, tokens, rank and rotary, float32
    assert cache.bytes == 2 * cache_bytes(CONFIG, 64)  # which counts bfloat16
    assert cache_bytes_per_token(CONFIG) == 2 * (12 + 4) * 2


def test_latent_attention_has_gradients_and_recomputation_keeps_them():
    gradients = []
    for again in (0, 1):
        model = built()
        model.stack.recompute = again
        tokens = torch.arange(20).reshape(2, 10)
        documents = torch.tensor([[0] * 4 + [1] * 6, [2] * 10])
        model(tokens, documents=documents).square().mean().backward()
        gradients.append([weight.grad for weight in model.parameters()])
    assert all(grad.abs().sum() > 0 for grad in gradients[0])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_deepseek_v3s_attention_has_the_papers_sizes():
    """61 layers of 128 heads have 187 million parameters each (DeepSeek-V3, section 4.2) and cache
    70 KB per token; MHA with these heads would cache 4 MB.
    """
    attention = {"kind": "latent", "heads": 128, "query_rank": 1536}
    shape = {"layers": 61, "hidden": 7168, "attention": attention}
    config = change(preset("llama-7b"), shape, "model")
    a_layer = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    assert parts(config).attention == 61 * a_layer
    assert a_layer == 187_105_280
    assert cache_bytes_per_token(config) == 61 * 576 * 2 == 70_272
    table = serving(config, memory=find_gpu("H200").memory, context=4096)["heads"]
    assert [row["kind"] for row in table] == ["MHA", "GQA 16:1", "MQA", "MLA"]
    assert [row["own"] for row in table] == [False, False, False, True]
    # DeepSeek-V2, table 1: 2 n d, 2 g d, 2 d and 9/2 d numbers a layer.
    assert [row["bytes_per_token"] / (61 * 128 * 2) for row in table] == [256, 16, 2, 4.5]
    assert sharing(config) == "MLA"


def test_operations_are_counted_by_the_dimensions_of_keys_and_values():
    keys = 2 * 33 / 2  # of both layers, on average, at a context of 32
    assert attention_flops(CONFIG, 32) == 2 * 4 * (12 + 6) * keys
    total = 6 * matmul_parameters(CONFIG) + 3 * attention_flops(CONFIG, 32)
    assert flops_per_token(CONFIG, 32) == total
    assert parameters(CONFIG) == sum(weight.numel() for weight in Decoder(CONFIG).parameters())
    by_name = {step.name: step for step in decoding(CONFIG, batch=1, context=32)}
    looked = by_name["attention"]
    assert looked.flops == 2 * 4 * (16 + 12) * 32  # heads x (rank + rotary, and rank) a key
    assert looked.bytes == 2 * (4 * (16 + 12) + 16 * 32)
    assert by_name["attention output"].flops == 2 * 4 * 6 * 32


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"position": "alibi"}, "attention latent with position alibi"),
        ({"position.dim": 4}, "position.dim with attention latent"),
        ({"mup_base": 32}, "mup_base with attention latent"),
        ({"attention.rotary_dim": 5}, "attention.rotary_dim is 5: it must be even"),
        ({"attention.window": 5}, "attention.window"),
    ],
)
def test_settings_incompatible_with_latent_attention_are_refused_in_one_line(settings, line):
    with pytest.raises(LlmcurateError, match=line) as caught:
        change(CONFIG, settings, "model")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_its_settings_come_back_from_a_checkpoint():
    assert from_dict(type(CONFIG), to_dict(CONFIG), "config.json") == CONFIG
    assert isinstance(CONFIG.attention, Latent)
