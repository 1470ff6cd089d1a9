"""LLaMA and published decoders of its kind, without most biases, and our own."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable
from functools import partial
from typing import Any

from train.model.attention_settings import Grouped, heads_of
from train.model.config import Head, ModelConfig, Norm, Parallel
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Rope, RopeScaling


def ours(layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, **more: Any) -> ModelConfig:
    """LLaMA-style: RMSNorm, RoPE, SwiGLU, grouped queries, tied embeddings."""
    sizes = {"vocab": 32_000, "context": 2048} | more
    return llama(layers, hidden, heads, mlp, kv_heads=kv_heads, tied=True, **sizes)  # type: ignore[arg-type]


def llama(
    layers: int,
    hidden: int,
    heads: int,
    mlp: int,
    *,
    kv_heads: int | None = None,
    vocab: int = 32_000,
    context: int = 2048,
    theta: float = 10_000.0,
    scaling: RopeScaling | None = None,
    tied: bool = False,
    eps: float = 1e-5,
    **attention: Any,
) -> ModelConfig:
    """Touvron et al. 2023; Grattafiori et al. 2024."""
    return ModelConfig(
        vocab=vocab,
        layers=layers,
        hidden=hidden,
        context=context,
        attention=heads_of(hidden, heads, kv_heads=kv_heads or heads, **attention),
        feed_forward=Dense(width=mlp),
        norm=Norm(eps=eps),
        position=Rope(theta=theta, scaling=scaling),
        head=Head(tied=tied),
    )


llama1 = partial(llama, eps=1e-6)
llama2 = partial(llama, context=4096)
llama3 = partial(llama, kv_heads=8, vocab=128_256, context=8192, theta=500_000.0)


def llama31(layers: int, hidden: int, heads: int, mlp: int, factor: float = 8.0, **more: bool):  # type: ignore[no-untyped-def]
    """Llama 3.1 and 3.2: the rotation stretched from 8,192 to 131,072 tokens."""
    scaling = RopeScaling(kind="llama3", factor=factor, original_context=8192)
    return llama3(layers, hidden, heads, mlp, scaling=scaling, context=131_072, **more)


def mistral() -> ModelConfig:
    """Jiang et al. 2023: a window of 4,096 tokens in every layer."""
    return llama(32, 4096, 32, 14_336, kv_heads=8, context=32_768, window=4096)


def qwen(
    layers: int, hidden: int, heads: int, mlp: int, *, vocab: int, context: int, theta: float
) -> ModelConfig:
    """Qwen (Bai et al. 2023): as Qwen2.5, with as many keys as queries."""
    config = qwen25(layers, hidden, heads, heads, mlp, vocab=vocab, context=context)
    return dataclasses.replace(config, position=Rope(theta=theta))


def qwen25(
    layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, **more: Any
) -> ModelConfig:
    """Qwen2.5 (Yang et al. 2024): biases on queries, keys and values alone."""
    usual = {"vocab": 151_936, "context": 32_768, "theta": 1e6, "eps": 1e-6}
    sizes = ChainMap(more, usual)
    return llama(layers, hidden, heads, mlp, kv_heads=kv_heads, bias="qkv", **sizes)


def yi() -> ModelConfig:
    """Yi-34B (Young et al. 2024)."""
    sizes = {"vocab": 64_000, "context": 4096}
    return llama(60, 7168, 56, 20_480, kv_heads=8, theta=5e6, **sizes)  # type: ignore[arg-type]


deepseek = partial(llama, vocab=102_400, context=4096, eps=1e-6)  # LLM, Bi et al. 2024


def palm(layers: int, hidden: int, heads: int) -> ModelConfig:
    """Chowdhery et al. 2022: parallel, SwiGLU, one key and value head, no biases."""
    return ModelConfig(
        vocab=256_000,
        layers=layers,
        hidden=hidden,
        context=2048,
        attention=Grouped(heads=heads, kv_heads=1, head_dim=256),
        feed_forward=Dense(width=4 * hidden),
        norm=Norm(kind="layer_no_bias"),
        residual=Parallel(),
    )


def olmo(layers: int, hidden: int, heads: int, mlp: int, tied: bool) -> ModelConfig:
    """OLMo (Groeneveld et al. 2024): a LayerNorm without weights."""
    config = llama(layers, hidden, heads, mlp, vocab=50_304, tied=tied)
    return dataclasses.replace(config, norm=Norm(kind="layer_plain"))


OURS: dict[str, Callable[[], ModelConfig]] = {
    # About 2.5 million parameters at a vocabulary of 4,096: a minute on two CPU cores.
    "tiny": partial(ours, 4, 192, 6, 2, 512, vocab=4096, context=256),
    "30m": partial(ours, 8, 384, 6, 2, 1536, context=1024),
    "124m": partial(ours, 12, 768, 12, 4, 2944),
    "350m": partial(ours, 24, 1024, 16, 4, 3456),
    "1b": partial(ours, 20, 2048, 16, 4, 5888),
}
LLAMA: dict[str, Callable[[], ModelConfig]] = {
    "llama-7b": partial(llama1, 32, 4096, 32, 11_008),
    "llama-13b": partial(llama1, 40, 5120, 40, 13_824),
    "llama-33b": partial(llama1, 60, 6656, 52, 17_920),
    "llama-65b": partial(llama1, 80, 8192, 64, 22_016),
    "llama2-7b": partial(llama2, 32, 4096, 32, 11_008),
    "llama2-13b": partial(llama2, 40, 5120, 40, 13_824),
    "llama2-70b": partial(llama2, 80, 8192, 64, 28_672, kv_heads=8),
    "llama3-8b": partial(llama3, 32, 4096, 32, 14_336),
    "llama3-70b": partial(llama3, 80, 8192, 64, 28_672),
    "llama3.1-8b": partial(llama31, 32, 4096, 32, 14_336),
    "llama3.1-70b": partial(llama31, 80, 8192, 64, 28_672),
    "llama3.1-405b": partial(llama31, 126, 16_384, 128, 53_248),
    "llama3.2-1b": partial(llama31, 16, 2048, 32, 8192, factor=32.0, tied=True),
    "llama3.2-3b": partial(llama31, 28, 3072, 24, 8192, factor=32.0, tied=True),
    "mistral-7b": mistral,
    "qwen-7b": partial(qwen, 32, 4096, 32, 11_008, vocab=151_936, context=2048, theta=10_000.0),
    "qwen-14b": partial(qwen, 40, 5120, 40, 13_696, vocab=152_064, context=2048, theta=10_000.0),
    "qwen-72b": partial(qwen, 80, 8192, 64, 24_576, vocab=152_064, context=32_768, theta=1e6),
    "qwen2.5-0.5b": partial(qwen25, 24, 896, 14, 2, 4864, tied=True),
    "qwen2.5-1.5b": partial(qwen25, 28, 1536, 12, 2, 8960, context=131_072, tied=True),
    "qwen2.5-3b": partial(qwen25, 36, 2048, 16, 2, 11_008, tied=True),
    "qwen2.5-7b": partial(qwen25, 28, 3584, 28, 4, 18_944, vocab=152_064, context=131_072),
    "qwen2.5-14b": partial(
        qwen25, 48, 5120, 40, 8, 13_824, vocab=152_064, context=131_072, eps=1e-5
    ),
    "qwen2.5-32b": partial(
        qwen25, 64, 5120, 40, 8, 27_648, vocab=152_064, context=131_072, eps=1e-5
    ),
    "qwen2.5-72b": partial(
        qwen25, 80, 8192, 64, 8, 29_568, vocab=152_064, context=131_072, eps=1e-5
    ),
    "yi-34b": yi,
    "deepseek-7b": partial(deepseek, 30, 4096, 32, 11_008),
    "deepseek-67b": partial(deepseek, 95, 8192, 64, 22_016, kv_heads=8),
    "palm-8b": partial(palm, 32, 4096, 16),
    "palm-62b": partial(palm, 64, 8192, 32),
    "palm-540b": partial(palm, 118, 18_432, 48),
    "olmo-1b": partial(olmo, 16, 2048, 16, 8192, True),
    "olmo-7b": partial(olmo, 32, 4096, 32, 11_008, False),
}
# Weight decay as published with the models whose names begin so.
DECAYS = {
    "llama": "0.1",  # Touvron et al. 2023a, 2023b; Grattafiori et al. 2024
    "deepseek": "0.1",  # Bi et al. 2024, section 2.3
    "palm": "learning rate squared",  # Chowdhery et al. 2022
    "olmo": "0.1",  # Groeneveld et al. 2024
}
