"""Configurations of encoder-decoders: the original transformer, T5, mT5, BART, and small ones."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from train.model.attention_settings import Grouped, heads_of
from train.model.config import Embedding, Encoder, Head, ModelConfig, Norm
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Learned, encoding
from train.model.published import Published


def original(layers: int, hidden: int, heads: int, dropout: float) -> ModelConfig:
    """Return the transformer of Vaswani et al. 2017 (table 3): norms after each sublayer,
    sinusoids, one matrix for both embeddings and the head. Only the feed-forward has biases."""
    return ModelConfig(
        vocab=37_000,
        layers=layers,
        hidden=hidden,
        context=512,
        attention=Grouped(heads=heads, kv_heads=heads, head_dim=hidden // heads),
        feed_forward=Dense(width=4 * hidden, activation="relu", bias=True),
        norm=Norm(kind="layer", place="post"),
        position=encoding("sinusoidal"),
        encoder=Encoder(layers=layers),
        dropout=dropout,
    )


def t5(
    layers: int,
    hidden: int,
    heads: int,
    width: int,
    *,
    head_dim: int = 64,
    activation: str = "relu",
    tied: bool = True,
    **more: Any,
) -> ModelConfig:
    """Return T5 (Raffel et al. 2020): RMSNorm before each sublayer, relative position buckets, no
    biases. T5 does not scale queries; the initial query weights make up for it."""
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        attention=Grouped(heads=heads, kv_heads=heads, head_dim=head_dim),
        feed_forward=Dense(width=width, activation=activation),
        norm=Norm(eps=1e-6),
        position=encoding("t5"),
        head=Head(tied=tied),
        encoder=Encoder(layers=layers),
        **ChainMap(more, {"vocab": 32_128, "context": 512, "dropout": 0.1}),
    )


def t5_1_1(layers: int, hidden: int, heads: int, width: int, *, vocab: int = 32_128) -> ModelConfig:
    """Return T5 1.1 or mT5 (Xue et al. 2021): T5 with gated GELU, an untied head and no dropout."""
    sizes = layers, hidden, heads, width
    return t5(*sizes, vocab=vocab, activation="geglu_tanh", tied=False, dropout=0.0)


def bart(layers: int, hidden: int, heads: int, **more: Any) -> ModelConfig:
    """Return BART (Lewis et al. 2020): norms after the embeddings and after each sublayer. The
    first position uses row 2 of the position table."""
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        attention=heads_of(hidden, heads, bias="all"),
        feed_forward=Dense(width=4 * hidden, activation="gelu", bias=True),
        norm=Norm(kind="layer", place="post"),
        position=Learned(offset=2),
        embedding=Embedding(norm=True),
        head=Head(bias=True),
        encoder=Encoder(layers=layers, learns="bart"),
        **ChainMap(more, {"vocab": 50_265, "context": 1024, "dropout": 0.1}),
    )


_SIZES = {
    "small": (8, 512, 6, 1024),
    "base": (12, 768, 12, 2048),
    "large": (24, 1024, 16, 2816),
    "xl": (24, 2048, 32, 5120),
    "xxl": (24, 4096, 64, 10_240),
}
PRESETS: dict[str, Callable[[], ModelConfig]] = {
    "transformer-base": partial(original, 6, 512, 8, 0.1),
    "transformer-big": partial(original, 6, 1024, 16, 0.3),
    "t5-tiny": partial(t5, 4, 192, 6, 768, head_dim=32, vocab=4096, context=256, dropout=0.0),
    "t5-small": partial(t5, 6, 512, 8, 2048),
    "t5-base": partial(t5, 12, 768, 12, 3072),
    "t5-large": partial(t5, 24, 1024, 16, 4096),
    "t5-3b": partial(t5, 24, 1024, 32, 16_384, head_dim=128),
    "t5-11b": partial(t5, 24, 1024, 128, 65_536, head_dim=128),
    **{f"t5.1.1-{name}": partial(t5_1_1, *size) for name, size in _SIZES.items()},
    **{f"mt5-{name}": partial(t5_1_1, *size, vocab=250_112) for name, size in _SIZES.items()},
    "bart-tiny": partial(bart, 4, 192, 6, vocab=4096, context=256, dropout=0.0),
    "bart-base": partial(bart, 6, 768, 12),
    "bart-large": partial(bart, 12, 1024, 16),
}

_ORIGINAL = Published(
    source="Vaswani et al. 2017, section 5",
    note="targets were smoothed by 0.1, which is no setting here",
    optimizer="adamw",
    schedule="inverse-sqrt",
    lr_floor=0.0,
    warmup=4000,
    rows=49,  # 25,000 source and 25,000 target tokens
    context=512,
    beta1=0.9,
    beta2=0.98,
    eps=1e-9,
    weight_decay=0.0,
)
# The rate is 1 / sqrt(step), but 0.01 in the first 10,000 steps.
_T5 = Published(
    source="Raffel et al. 2020, sections 3.1.2 and 3.7",
    note="the rate rises in the warm-up, where T5's was constant",
    optimizer="adafactor",
    lr=0.01,
    schedule="inverse-sqrt",
    lr_floor=0.0,
    warmup=10_000,
    rows=2048,
    context=512,
    steps=1_000_000,
    weight_decay=0.0,
)
_MT5 = replace(_T5, source="Xue et al. 2021, section 3.2", rows=1024, context=1024)
_BART = Published(
    source="Lewis et al. 2020, section 5",
    note="without dropout in the last tenth of the steps",
    rows=8000,
    steps=500_000,
)
TRAININGS = {
    # The highest rate is hidden ** -0.5 * warmup ** -0.5.
    "transformer-base": replace(_ORIGINAL, lr=(512 * 4000) ** -0.5, steps=100_000),
    "transformer-big": replace(_ORIGINAL, lr=(1024 * 4000) ** -0.5, steps=300_000),
    **{f"t5-{name}": _T5 for name in ("small", "base", "large", "3b", "11b")},
    **{f"mt5-{name}": _MT5 for name in _SIZES},
    "bart-large": _BART,
}
