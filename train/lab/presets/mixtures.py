"""Configurations of published mixtures of experts, and of small ones."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable
from functools import partial
from typing import Any

from train.model.attention_settings import Latent, heads_of
from train.model.config import Head, ModelConfig, Norm
from train.model.feed_forward_settings import Experts
from train.model.position_settings import Rope, RopeScaling
from train.model.presets import deepseek as deepseek_llm
from train.model.presets import llama, qwen25


def mixtral(
    layers: int, hidden: int, heads: int, kv_heads: int, width: int, **more: Any
) -> ModelConfig:
    """Return Mixtral (Jiang et al. 2024): Mistral without window, two of 8 experts per token."""
    sizes = ChainMap(more, {"context": 32_768, "theta": 1e6})
    own = llama(layers, hidden, heads, width, kv_heads=kv_heads, **sizes)
    experts = Experts(count=8, top_k=2, width=width, balance=0.02)
    return dataclasses.replace(own, feed_forward=experts)


def qwen2_moe() -> ModelConfig:
    """Return Qwen1.5-MoE-A2.7B (Qwen Team 2024): each token uses four of 60 narrow experts, whose
    scores are not normalised, and a gated shared expert as wide as four narrow ones."""
    experts = Experts(count=60, top_k=4, width=1408, normalise=False, balance=0.001)
    experts = dataclasses.replace(experts, shared_width=5632, shared_gate=True)
    own = qwen25(24, 2048, 16, 16, 1408, context=8192)
    return dataclasses.replace(own, feed_forward=experts)


def deepseek(
    layers: int,
    hidden: int,
    attention: Latent,
    feed_forward: Experts,
    *,
    vocab: int = 102_400,
    share: float = 1.0,
) -> ModelConfig:
    """Return DeepSeek-V2 (arXiv 2405.04434) or V3 (arXiv 2412.19437), with rotary positions
    stretched by YaRN from 4,096 to 163,840 tokens. ``share`` is YaRN's ``mscale_all_dim``."""
    yarn = RopeScaling(kind="yarn", factor=40.0, original_context=4096, all_dims=share)
    sizes = layers, hidden, attention.heads, feed_forward.width
    own, position = deepseek_llm(*sizes, vocab=vocab, context=163_840), Rope(scaling=yarn)
    return dataclasses.replace(
        own, attention=attention, feed_forward=feed_forward, position=position
    )


# V2: softmax scores, not normalised; groups ranked by their best expert. V3: normalised sigmoid
# scores; groups ranked by their best two experts; loads balanced by a bias.
_V2 = partial(Experts, top_k=6, normalise=False, group_best=1, first_dense=1, balance=0.001)
_V3 = partial(Experts, scores="sigmoid", scale=2.5, bias_rate=0.001, balance=0.001)


def deepseek_tiny() -> ModelConfig:
    """Return a small model built like DeepSeek-V3, with one module for multi-token prediction."""
    experts = _V3(count=16, top_k=4, width=64, shared_width=64, groups=4, top_groups=2)
    experts = dataclasses.replace(experts, first_dense=1, dense_width=512)
    attention = Latent(heads=6, query_rank=96, rank=64, rotary_dim=16, plain_dim=32, value_dim=32)
    own = deepseek_llm(4, 192, 6, 512, vocab=4096, context=256)
    return dataclasses.replace(own, attention=attention, feed_forward=experts, head=Head(mtp=1))


def deepseek_v2_lite() -> ModelConfig:
    """Return V2-Lite: 15.7 billion parameters, 2.4 billion active per token."""
    experts = _V2(count=64, width=1408, shared_width=2 * 1408, dense_width=10_944)
    return deepseek(27, 2048, Latent(heads=16), experts, share=0.707)


def deepseek_v2() -> ModelConfig:
    """Return V2: 236 billion parameters, 21 billion active per token, in 3 of 8 expert groups."""
    experts = _V2(count=160, width=1536, shared_width=2 * 1536, dense_width=12_288, scale=16.0)
    experts = dataclasses.replace(experts, groups=8, top_groups=3)
    return deepseek(60, 5120, Latent(heads=128, query_rank=1536), experts)


def deepseek_v3() -> ModelConfig:
    """Return V3: 671 billion parameters, 37 billion per token, in 4 of 8 groups of experts."""
    experts = _V3(count=256, top_k=8, width=2048, shared_width=2048, dense_width=18_432)
    experts = dataclasses.replace(experts, first_dense=3, groups=8, top_groups=4)
    return deepseek(61, 7168, Latent(heads=128, query_rank=1536), experts, vocab=129_280)


def deepseek_moe() -> ModelConfig:
    """Return DeepSeekMoE 16B (Dai et al. 2024): each token uses six of 64 narrow experts and two
    shared ones; 2.8 billion active parameters."""
    experts = _V2(count=64, width=1408, shared_width=2 * 1408, dense_width=10_944)
    return dataclasses.replace(deepseek_llm(28, 2048, 16, 1408), feed_forward=experts)


def dbrx() -> ModelConfig:
    """Return DBRX (Databricks 2024): four of 16 experts, 36 of 132 billion parameters per token.
    Its clipping of queries, keys and values to 8 is left out."""
    own = mixtral(40, 6144, 48, 8, 10_752, vocab=100_352)
    experts = Experts(count=16, top_k=4, width=10_752, balance=0.05)
    norm, position = Norm(kind="layer_no_bias"), Rope(theta=500_000.0)
    return dataclasses.replace(own, feed_forward=experts, norm=norm, position=position)


def grok1() -> ModelConfig:
    """Return Grok-1 (xAI 2024): two of 8 experts with gated GELU, norms before and after each part,
    scores capped at 30. Its multipliers of embedding and logits are left out."""
    own = mixtral(64, 6144, 48, 8, 32_768, tied=True, vocab=131_072, context=8192)
    return dataclasses.replace(
        own,
        attention=heads_of(6144, 48, kv_heads=8, softcap=30.0),
        feed_forward=Experts(count=8, top_k=2, width=32_768, activation="geglu_tanh"),
        norm=Norm(place="sandwich"),
        position=Rope(),
    )


def minicpm_moe() -> ModelConfig:
    """Return MiniCPM-MoE 8x2B (Hu et al. 2024): MiniCPM 2B, upcycled to two of 8 experts. Its
    multipliers of embedding, depth and logits are left out."""
    own = mixtral(40, 2304, 36, 36, 5760, tied=True, vocab=122_753, context=4096)
    return dataclasses.replace(own, position=Rope())


PRESETS: dict[str, Callable[[], ModelConfig]] = {
    "mixtral-tiny": partial(mixtral, 4, 192, 6, 2, 256, vocab=4096, context=256, tied=True),
    "mixtral-8x7b": partial(mixtral, 32, 4096, 32, 8, 14_336),
    "mixtral-8x22b": partial(mixtral, 56, 6144, 48, 8, 16_384, context=65_536),
    "qwen2-moe": qwen2_moe,
    "deepseek-tiny": deepseek_tiny,
    "deepseek-moe-16b": deepseek_moe,
    "dbrx": dbrx,
    "grok-1": grok1,
    "minicpm-moe-8x2b": minicpm_moe,
    "deepseek-v2-lite": deepseek_v2_lite,
    "deepseek-v2": deepseek_v2,
    "deepseek-v3": deepseek_v3,
}
