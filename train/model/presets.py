"""Published model sizes and our own, as plain functions, by family. Published ones follow the
``config.json`` that their authors released, or the paper's table. Each parameter count is tested
against the published figure, and against the class in transformers if there is one.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import ChainMap
from collections.abc import Callable
from functools import partial
from typing import Any

from llmcurate.base.errors import UsageError
from llmcurate.base.index import modules_of
from train.model.attention_settings import heads_of
from train.model.config import Embedding, Head, ModelConfig, Norm, Parallel
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Learned, Rope, RopeScaling, encoding
from train.model.published import TRAININGS as OF_DECODERS

LAYER_NORM = Norm(kind="layer")


def gpt1() -> ModelConfig:
    """GPT-1 (Radford et al. 2018): post-norm; a vocabulary of 478 characters and 40,000 merges."""
    config = gpt2(12, 768, 12)
    norm = dataclasses.replace(LAYER_NORM, place="post")
    return dataclasses.replace(config, vocab=40_478, context=512, norm=norm)


def gpt2(
    layers: int, hidden: int, heads: int, activation: str = "gelu_tanh", **more: Any
) -> ModelConfig:
    """GPT-2 (Radford et al. 2019): LayerNorm before each sublayer, GELU, learned positions."""
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
    """GPT-3 (Brown et al. 2020, table 2.1), built as GPT-2. Here all layers attend to all tokens;
    in GPT-3 every second layer has sparse attention, which changes no weight. For XL, the table's
    24 heads of 128 would give 3,072 dimensions instead of 2,048, and 1.5 billion parameters. The 16
    heads here give the stated 1.3 billion. 13B keeps its 5,140 dimensions, although they are not a
    multiple of 40 heads. The paper names no dropout; some tables of other authors have 0.1."""
    config = gpt2(layers, hidden, heads)
    attention = heads_of(hidden, heads, head_dim=head_dim, bias="all")
    return dataclasses.replace(config, context=2048, attention=attention, dropout=0.0)


def gopher(layers: int, hidden: int, heads: int) -> ModelConfig:
    """Gopher (Rae et al. 2021, table 1) and Chinchilla (Hoffmann et al. 2022, table 4): as GPT-2,
    with RMSNorm and Transformer-XL's relative positions. Neither names an activation, so it is
    GPT-2's; some tables of other authors have ReLU.
    """
    own = gpt2(layers, hidden, heads, position=encoding("distances"), dropout=0.0)
    return dataclasses.replace(own, vocab=32_000, context=2048, norm=Norm())


def gptj() -> ModelConfig:
    """GPT-J 6B (Wang and Komatsuzaki 2021): parallel, one norm, 64 of 256 dimensions rotated."""
    own = gpt2(28, 4096, 16, vocab=50_400, context=2048, position=Rope(dim=64), dropout=0.0)
    attention, head = heads_of(4096, 16), Head(tied=False, bias=True)
    return dataclasses.replace(own, attention=attention, residual=Parallel(), head=head)


def gpt_neox(
    layers: int, hidden: int, heads: int, *, vocab: int = 50_304, gelu: str = "gelu"
) -> ModelConfig:
    """GPT-NeoX (Black et al. 2022) and Pythia: parallel, two norms, a quarter of a head rotated."""
    position = Rope(dim=hidden // heads // 4)
    own = gpt2(layers, hidden, heads, gelu, vocab=vocab, position=position, dropout=0.0)
    return dataclasses.replace(own, context=2048, residual=Parallel(norms=2), head=Head(tied=False))


def bloom(layers: int, hidden: int, heads: int) -> ModelConfig:
    """BLOOM (BigScience 2022): ALiBi, a norm after the embedding."""
    own = gpt2(layers, hidden, heads, position=encoding("alibi"), dropout=0.0)
    return dataclasses.replace(own, vocab=250_880, context=2048, embedding=Embedding(norm=True))


def opt(layers: int, hidden: int, heads: int) -> ModelConfig:
    """OPT (Zhang et al. 2022): ReLU, learned positions after two unused rows."""
    position = Learned(offset=2)
    return gpt2(layers, hidden, heads, "relu", vocab=50_272, context=2048, position=position)


def opt_350m() -> ModelConfig:
    """The one size of OPT with norms after attention and feed-forward, and with an embedding
    narrower than the stack of blocks. A matrix without bias leads into the stack, another one out
    of it. Positions are added after the first matrix."""
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


def ours(layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, **more: Any) -> ModelConfig:
    """Our own models, as LLaMA: RMSNorm, RoPE, SwiGLU, grouped queries, tied embeddings."""
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
    activation: str = "swiglu",
    **attention: Any,
) -> ModelConfig:
    """LLaMA (Touvron et al. 2023; Grattafiori et al. 2024)."""
    return ModelConfig(
        vocab=vocab,
        layers=layers,
        hidden=hidden,
        context=context,
        attention=heads_of(hidden, heads, kv_heads=kv_heads or heads, **attention),
        feed_forward=Dense(width=mlp, activation=activation),
        norm=Norm(eps=eps),
        position=Rope(theta=theta, scaling=scaling),
        head=Head(tied=tied),
    )


llama1 = partial(llama, eps=1e-6)
llama2 = partial(llama, context=4096)
llama3 = partial(llama, kv_heads=8, vocab=128_256, context=8192, theta=500_000.0)


def llama31(*sizes: int, factor: float = 8.0, **more: Any) -> ModelConfig:
    """Llama 3.1 and 3.2: the rotation is stretched from 8,192 to 131,072 tokens."""
    scaling = RopeScaling(kind="llama3", factor=factor, original_context=8192)
    return llama3(*sizes, scaling=scaling, context=131_072, **more)


def qwen(
    layers: int, hidden: int, heads: int, mlp: int, *, vocab: int, context: int, theta: float
) -> ModelConfig:
    """Qwen (Bai et al. 2023): as Qwen2.5, with as many key heads as query heads. The released
    config.json has no dropout; the 0.1 in some other authors' tables is that of fine-tuning."""
    config = qwen25(layers, hidden, heads, heads, mlp, vocab=vocab, context=context)
    return dataclasses.replace(config, position=Rope(theta=theta))


def qwen25(
    layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, **more: Any
) -> ModelConfig:
    """Qwen2.5 (Yang et al. 2024): only queries, keys and values have biases."""
    usual = {"vocab": 151_936, "context": 32_768, "theta": 1e6, "eps": 1e-6}
    sizes = ChainMap(more, usual)
    return llama(layers, hidden, heads, mlp, kv_heads=kv_heads, bias="qkv", **sizes)


yi = partial(llama, kv_heads=8, theta=5e6, vocab=64_000, context=4096)  # Young et al. 2024
deepseek = partial(llama, vocab=102_400, context=4096, eps=1e-6)  # LLM, Bi et al. 2024


def palm(layers: int, hidden: int, heads: int) -> ModelConfig:
    """PaLM (Chowdhery et al. 2022): parallel parts, SwiGLU, one key and value head, and no biases,
    not even in LayerNorms (section 2). Some papers of other authors list RMSNorm for PaLM."""
    sizes = {"kv_heads": 1, "head_dim": 256, "vocab": 256_000, "tied": True}
    own = llama(layers, hidden, heads, 4 * hidden, **sizes)  # type: ignore[arg-type]
    return dataclasses.replace(own, norm=Norm(kind="layer_no_bias"), residual=Parallel())


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
    # Jiang et al. 2023: a window of 4,096 tokens in every layer.
    "mistral-7b": partial(llama, 32, 4096, 32, 14_336, kv_heads=8, context=32_768, window=4096),
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
    "yi-34b": partial(yi, 60, 7168, 56, 20_480),
    "deepseek-7b": partial(deepseek, 30, 4096, 32, 11_008),
    "deepseek-67b": partial(deepseek, 95, 8192, 64, 22_016, kv_heads=8),
    "palm-8b": partial(palm, 32, 4096, 16),
    "palm-62b": partial(palm, 64, 8192, 32),
    "palm-540b": partial(palm, 118, 18_432, 48),
    "olmo-1b": partial(olmo, 16, 2048, 16, 8192, True),
    "olmo-7b": partial(olmo, 32, 4096, 32, 11_008, False),
}


OWN = tuple(OURS)  # of this project

PRESETS = OURS | GPT | LLAMA
TRAININGS = dict(OF_DECODERS)
for _module in modules_of("train.lab.presets"):
    PRESETS |= _module.PRESETS
    TRAININGS |= getattr(_module, "TRAININGS", {})


def preset(name: str, *, vocab: int | None = None, context: int | None = None) -> ModelConfig:
    """Return the preset ``name``. ``vocab`` and ``context`` replace the sizes of its vocabulary and
    context, if given. Raises ``LlmcurateError`` for an unknown name."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.4)
        listed = ", ".join(close or list(PRESETS)[:5])
        raise UsageError(
            f"model {name!r}: not a preset, nor a model's folder; similar presets: {listed} "
            "(`llmcurate model list` shows all)"
        )
    config = PRESETS[name]()
    return dataclasses.replace(
        config, vocab=vocab or config.vocab, context=context or config.context
    )
