"""Configurations of published decoders: relatives of LLaMA, and decoders with special parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from train.model.attention_settings import Grouped, heads_of
from train.model.config import Head, ModelConfig, Norm, Parallel
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Rope, encoding
from train.model.presets import gpt2, llama, olmo


def gpt_neo(layers: int, hidden: int, heads: int) -> ModelConfig:
    """Return GPT-Neo (Black et al. 2021): GPT-2 with a window of 256 tokens in every second layer
    and unscaled scores. In attention, only the output matrix has a bias."""
    attention = heads_of(hidden, heads, bias="out", score_dim=1, window=256, window_pattern="FW")
    own = gpt2(layers, hidden, heads, context=2048, dropout=0.0)
    return dataclasses.replace(own, attention=attention)


def lamda() -> ModelConfig:
    """Return LaMDA 137B (Thoppilan et al. 2022, section 3): T5's positions and gated GELU. The
    paper names no norm and no context: here the norm is T5's, the context LLaMA's."""
    own = llama(64, 8192, 128, 65_536, head_dim=128, activation="geglu_tanh", eps=1e-6, tied=True)
    return dataclasses.replace(own, position=encoding("t5"))


def gemma(
    layers: int, hidden: int, heads: int, kv_heads: int, width: int, head_dim: int = 256
) -> ModelConfig:
    """Return Gemma (Mesnard et al. 2024). Its factor sqrt(hidden) on embeddings is left out,
    because larger initial embeddings have the same effect."""
    own = partial(llama, vocab=256_000, context=8192, activation="geglu_tanh", eps=1e-6, tied=True)
    return own(layers, hidden, heads, width, kv_heads=kv_heads, head_dim=head_dim)


def gemma2(*sizes: int, score_dim: int | None = None) -> ModelConfig:
    """Return Gemma 2 (Gemma Team 2024): norms before and after each part, a window of 4,096 tokens
    in every second layer, capped scores and logits."""
    own = gemma(*sizes)
    assert isinstance(own.attention, Grouped)
    attention = dataclasses.replace(
        own.attention, window=4096, window_pattern="WF", softcap=50.0, score_dim=score_dim
    )
    norm = dataclasses.replace(own.norm, place="sandwich")
    head = Head(tied=True, softcap=30.0)
    return dataclasses.replace(own, attention=attention, norm=norm, head=head)


_plain = partial(llama, activation="gelu", tied=True)


def falcon(layers: int, hidden: int, heads: int, kv_heads: int, norms: int) -> ModelConfig:
    """Return Falcon (Almazrouei et al. 2023): parallel parts, shared key heads, no biases."""
    own = _plain(layers, hidden, heads, 4 * hidden, kv_heads=kv_heads, vocab=65_024)
    return dataclasses.replace(own, norm=Norm(kind="layer"), residual=Parallel(norms=norms))


def mpt(layers: int, hidden: int, heads: int, context: int) -> ModelConfig:
    """Return MPT (MosaicML 2023): ALiBi, LayerNorm without bias, no biases."""
    own = _plain(layers, hidden, heads, 4 * hidden, context=context, vocab=50_432)
    return dataclasses.replace(own, norm=Norm(kind="layer_no_bias"), position=encoding("alibi"))


def crystalcoder() -> ModelConfig:
    """Return CrystalCoder 7B (Liu et al. 2023, LLM360): LLaMA with LayerNorm, biases, and 32 of 128
    dimensions rotated. Its muP multipliers are left out."""
    own = llama(32, 4096, 32, 10_922, vocab=32_032, bias="all")
    feed_forward = Dense(width=10_922, bias=True)
    norm, position = Norm(kind="layer"), Rope(dim=32)
    return dataclasses.replace(own, feed_forward=feed_forward, norm=norm, position=position)


smollm2 = partial(llama, vocab=49_152, context=8192, tied=True)  # Allal et al. 2025
openllama = partial(llama, eps=1e-6)  # Geng and Liu 2023

PRESETS: dict[str, Callable[[], ModelConfig]] = {
    "gpt-neo-125m": partial(gpt_neo, 12, 768, 12),
    "gpt-neo-1.3b": partial(gpt_neo, 24, 2048, 16),
    "gpt-neo-2.7b": partial(gpt_neo, 32, 2560, 20),
    "lamda-137b": lamda,
    "gemma-2b": partial(gemma, 18, 2048, 8, 1, 16_384),
    "gemma-7b": partial(gemma, 28, 3072, 16, 16, 24_576),
    "gemma2-2b": partial(gemma2, 26, 2304, 8, 4, 9216),
    "gemma2-9b": partial(gemma2, 42, 3584, 16, 8, 14_336),
    "gemma2-27b": partial(gemma2, 46, 4608, 32, 16, 36_864, 128, score_dim=144),
    "falcon-7b": partial(falcon, 32, 4544, 71, 1, 1),
    "falcon-40b": partial(falcon, 60, 8192, 128, 8, 2),
    "falcon-180b": partial(falcon, 80, 14_848, 232, 8, 2),
    "mpt-7b": partial(mpt, 32, 4096, 32, 2048),
    "mpt-30b": partial(mpt, 48, 7168, 64, 8192),
    "crystalcoder-7b": crystalcoder,
    "smollm2-135m": partial(smollm2, 30, 576, 9, 1536, kv_heads=3, theta=100_000.0),
    "smollm2-360m": partial(smollm2, 32, 960, 15, 2560, kv_heads=5, theta=100_000.0),
    "smollm2-1.7b": partial(smollm2, 24, 2048, 32, 8192, theta=130_000.0),
    "openllama-3b": partial(openllama, 26, 3200, 32, 8640),
    "openllama-7b": partial(openllama, 32, 4096, 32, 11_008),
    "openllama-13b": partial(openllama, 40, 5120, 40, 13_824),
    "amber-7b": partial(openllama, 32, 4096, 32, 11_008),  # Liu et al. 2023, LLM360
    # The paper's rule: 8/3 x hidden, up to a multiple of 128.
    "olmo-65b": partial(olmo, 80, 8192, 64, 21_888, False),
}
