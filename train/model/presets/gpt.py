"""Published decoders with GPT's LayerNorm, plain activations and biases, and their kin."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable
from functools import partial
from typing import Any

from train.model.attention_settings import heads_of
from train.model.config import Embedding, Head, ModelConfig, Norm, Parallel
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Learned, Rope, encoding

LAYER_NORM = Norm(kind="layer")


def gpt1() -> ModelConfig:
    """Radford et al. 2018: norms after the parts; 40,000 merges and 478 bytes."""
    config = gpt2(12, 768, 12)
    norm = dataclasses.replace(LAYER_NORM, place="post")
    return dataclasses.replace(config, vocab=40_478, context=512, norm=norm)


def gpt2(
    layers: int, hidden: int, heads: int, activation: str = "gelu_tanh", **more: Any
) -> ModelConfig:
    """Radford et al. 2019: LayerNorm before the parts, GELU, learned positions."""
    usual = {"vocab": 50_257, "context": 1024, "position": Learned(), "dropout": 0.1}
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        attention=heads_of(hidden, heads, bias="all"),
        feed_forward=Dense(width=4 * hidden, activation=activation, bias=True),
        norm=LAYER_NORM,
        **ChainMap(more, usual),
    )


def gpt3(layers: int, hidden: int, heads: int, head_dim: int) -> ModelConfig:
    """Brown et al. 2020, table 2.1, as GPT-2, with all layers dense: every second of theirs was
    sparse in bands, which changes no weight. Of XL the table has 24 heads of 128, which is 3,072 of
    2,048 dimensions and 1.5 billion parameters; with 16 it has its 1.3. The 5,140 dimensions of 13B
    are no multiple of its 40 heads of 128, and stand as printed.
    """
    config = gpt2(layers, hidden, heads)
    attention = heads_of(hidden, heads, head_dim=head_dim, bias="all")
    return dataclasses.replace(config, context=2048, attention=attention, dropout=0.0)


def gopher(layers: int, hidden: int, heads: int) -> ModelConfig:
    """Rae et al. 2021, table 1, and Chinchilla (Hoffmann et al. 2022, table 4): as GPT-2, with
    RMSNorm and Transformer-XL's relative positions.
    """
    own = gpt2(layers, hidden, heads, position=encoding("distances"), dropout=0.0)
    return dataclasses.replace(own, vocab=32_000, context=2048, norm=Norm())


def gptj() -> ModelConfig:
    """GPT-J 6B (Wang and Komatsuzaki 2021): parallel, one norm, rotary over 64 of 256."""
    return ModelConfig(
        vocab=50_400,
        layers=28,
        hidden=4096,
        context=2048,
        attention=heads_of(4096, 16),
        feed_forward=Dense(width=16_384, activation="gelu_tanh", bias=True),
        norm=LAYER_NORM,
        residual=Parallel(),
        position=Rope(dim=64),
        head=Head(tied=False, bias=True),
    )


def gpt_neox(
    layers: int, hidden: int, heads: int, *, vocab: int = 50_304, gelu: str = "gelu"
) -> ModelConfig:
    """GPT-NeoX (Black et al. 2022), and Pythia: parallel, two norms, a quarter rotated."""
    position = Rope(dim=hidden // heads // 4)
    own = gpt2(layers, hidden, heads, gelu, vocab=vocab, position=position, dropout=0.0)
    return dataclasses.replace(own, context=2048, residual=Parallel(norms=2), head=Head(tied=False))


def bloom(layers: int, hidden: int, heads: int) -> ModelConfig:
    """BigScience 2022: ALiBi, a norm after the embedding."""
    own = gpt2(layers, hidden, heads, position=encoding("alibi"), dropout=0.0)
    return dataclasses.replace(own, vocab=250_880, context=2048, embedding=Embedding(norm=True))


def opt(layers: int, hidden: int, heads: int) -> ModelConfig:
    """Zhang et al. 2022: ReLU, learned positions after two unused rows."""
    position = Learned(offset=2)
    return gpt2(layers, hidden, heads, "relu", vocab=50_272, context=2048, position=position)


def opt_350m() -> ModelConfig:
    """The one size of OPT that norms after the parts, with a narrower embedding: matrices without
    bias lead into the stack, where positions are added, and out of it.
    """
    return dataclasses.replace(
        opt(24, 1024, 16),
        norm=dataclasses.replace(LAYER_NORM, place="post"),
        embedding=Embedding(size=512, bias=False, positions="after"),
    )


GPT: dict[str, Callable[[], ModelConfig]] = {
    "gpt1": gpt1,
    "gpt2": partial(gpt2, 12, 768, 12),
    "gpt2-medium": partial(gpt2, 24, 1024, 16),
    "gpt2-large": partial(gpt2, 36, 1280, 20),
    "gpt2-xl": partial(gpt2, 48, 1600, 25),
    "gpt3-125m": partial(gpt3, 12, 768, 12, 64),
    "gpt3-350m": partial(gpt3, 24, 1024, 16, 64),
    "gpt3-760m": partial(gpt3, 24, 1536, 16, 96),
    "gpt3-1.3b": partial(gpt3, 24, 2048, 16, 128),
    "gpt3-2.7b": partial(gpt3, 32, 2560, 32, 80),
    "gpt3-6.7b": partial(gpt3, 32, 4096, 32, 128),
    "gpt3-13b": partial(gpt3, 40, 5140, 40, 128),
    "gpt3-175b": partial(gpt3, 96, 12_288, 96, 128),
    "gopher-44m": partial(gopher, 8, 512, 16),
    "gopher-117m": partial(gopher, 12, 768, 12),
    "gopher-417m": partial(gopher, 12, 1536, 12),
    "gopher-1.4b": partial(gopher, 24, 2048, 16),
    "gopher-7.1b": partial(gopher, 32, 4096, 32),
    "gopher-280b": partial(gopher, 80, 16_384, 128),
    "chinchilla-70b": partial(gopher, 80, 8192, 64),
    "gptj-6b": gptj,
    "gpt-neox-20b": partial(gpt_neox, 44, 6144, 64, vocab=50_432, gelu="gelu_tanh"),
    "pythia-160m": partial(gpt_neox, 12, 768, 12),
    "pythia-1.4b": partial(gpt_neox, 24, 2048, 16),
    "bloom-560m": partial(bloom, 24, 1024, 16),
    "bloom-1b1": partial(bloom, 24, 1536, 16),
    "bloom-1b7": partial(bloom, 24, 2048, 16),
    "bloom-3b": partial(bloom, 30, 2560, 32),
    "bloom-7b1": partial(bloom, 30, 4096, 32),
    "bloom-176b": partial(bloom, 70, 14_336, 112),
    "opt-125m": partial(opt, 12, 768, 12),
    "opt-350m": opt_350m,
    "opt-1.3b": partial(opt, 24, 2048, 32),
    "opt-2.7b": partial(opt, 32, 2560, 32),
    "opt-6.7b": partial(opt, 32, 4096, 32),
    "opt-13b": partial(opt, 40, 5120, 40),
    "opt-30b": partial(opt, 48, 7168, 56),
    "opt-66b": partial(opt, 64, 9216, 72),
    "opt-175b": partial(opt, 96, 12_288, 96),
}
# Weight decay as published with the models whose names begin so.
DECAYS = {
    "gpt1": "0.01",  # Radford et al. 2018, section 4.1
    "gpt2": "0.1",  # Stanford CS336, the table of dropout and weight decay
    "gpt3": "0.1",  # Brown et al. 2020, appendix B
    "gptj": "0.1",  # mesh-transformer-jax, configs/6B_roto_256.json
    "gpt-neox": "0.01",  # Black et al. 2022
    "bloom": "0.1",  # Le Scao et al. 2022
    "opt": "0.1",  # Zhang et al. 2022
}
