"""Configurations of published encoders, and of small ones."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from llmcurate.base.settings import change
from train.model.attention_settings import Biases, heads_of
from train.model.config import Embedding, Generator, Head, ModelConfig, Norm
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Learned, Position, Rope, encoding
from train.model.published import Published

_HEAD = Head(bias=True, transform=True)


def bert(
    layers: int,
    hidden: int,
    heads: int,
    *,
    bias: Biases = "all",
    activation: str = "gelu",
    eps: float = 1e-12,
    **more: Any,
) -> ModelConfig:
    """Return BERT (Devlin et al. 2019): norms after each sublayer, learned positions, segments."""
    usual = {
        **{"vocab": 30_522, "context": 512, "position": Learned(), "dropout": 0.1},
        "embedding": Embedding(norm=True, segments=2),
        "head": replace(_HEAD, pair="next"),
    }
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        causal=False,
        attention=heads_of(hidden, heads, bias=bias),
        feed_forward=Dense(width=4 * hidden, activation=activation, bias=True),
        norm=Norm(kind="layer", place="post", eps=eps),
        **ChainMap(more, usual),
    )


def roberta(layers: int, hidden: int, heads: int, **more: Any) -> ModelConfig:
    """Return RoBERTa (Liu et al. 2019): BERT without pairs; the first position uses table row 2."""
    sizes, one = ChainMap(more, {"vocab": 50_265}), Embedding(norm=True, segments=1)
    own = bert(layers, hidden, heads, position=Learned(offset=2), eps=1e-5, **sizes)
    return replace(own, embedding=one, head=_HEAD)


def longformer(layers: int, hidden: int, heads: int, window: int, **more: Any) -> ModelConfig:
    """Return Longformer (Beltagy et al. 2020): RoBERTa with a window of ``window`` tokens to each
    side and a global first token. Unlike in the paper, global tokens have no queries, keys and
    values of their own, so each layer has 3 x hidden x (hidden + 1) weights fewer."""
    own = roberta(layers, hidden, heads, **more)
    return change(own, {"attention": {"window": window + 1, "globals": 1}}, "model")


def bigbird(layers: int, hidden: int, heads: int, *, block: int, **sizes: Any) -> ModelConfig:
    """Return BigBird (Zaheer et al. 2020, table 8): three blocks in the window, two global blocks
    and three random ones. The global blocks are the first two (in the paper, the first and the
    last)."""
    own = bert(layers, hidden, heads, head=_HEAD, activation="gelu_tanh", **sizes)
    blocks = {"window": 2, "globals": 2, "random": 3, "block": block}
    return change(own, {"attention": blocks}, "model")


def albert(
    layers: int, hidden: int, heads: int, *, size: int = 128, vocab: int = 30_000
) -> ModelConfig:
    """Return ALBERT (Lan et al. 2020): one block shared by all layers, a narrow embedding, and a
    head that predicts whether two segments are in their order."""
    own = bert(layers, hidden, heads, vocab=vocab, activation="gelu_tanh", dropout=0.0)
    narrow, head = replace(own.embedding, size=size), replace(_HEAD, pair="order")
    return replace(own, share=layers, embedding=narrow, head=head)


def spanbert(layers: int, hidden: int, heads: int, **more: Any) -> ModelConfig:
    """Return SpanBERT (Joshi et al. 2020): cased BERT without pairs, and in training a head that
    predicts a span from the tokens beside it. Train it by ``masked`` with unit ``span``."""
    sizes = ChainMap(more, {"vocab": 28_996})
    return bert(layers, hidden, heads, head=replace(_HEAD, boundary=True), **sizes)


def deberta(
    layers: int,
    hidden: int,
    heads: int,
    *,
    position: Callable[[], Position] = partial(encoding, "disentangled"),
    bias: Biases = "but_keys",
    **more: Any,
) -> ModelConfig:
    """Return DeBERTa (He et al. 2021): BERT with disentangled attention and no other positions. The
    paper's mask decoder, which adds absolute positions, is left out, as in transformers."""
    sizes, embedding = ChainMap(more, {"vocab": 50_265}), Embedding(norm=True)
    own = bert(layers, hidden, heads, bias=bias, position=position(), eps=1e-7, **sizes)
    return replace(own, embedding=embedding, head=_HEAD)


_V3 = partial(encoding, "disentangled", buckets=256, norm=True, shared=True)
deberta_tiny = partial(deberta, position=partial(encoding, "disentangled", span=128))
deberta_v3 = partial(deberta, position=_V3, bias="all", vocab=128_100)


def electra(
    layers: int, hidden: int, heads: int, *, smaller: int = 4, size: int | None = None, **more: Any
) -> ModelConfig:
    """Return ELECTRA (Clark et al. 2020): BERT that detects replaced tokens, and a generator."""
    own = bert(layers, hidden, heads, head=replace(_HEAD, replaced=True), **more)
    embedding = replace(own.embedding, size=size)
    return replace(own, embedding=embedding, generator=Generator(smaller=smaller))


def modernbert(
    layers: int, hidden: int, heads: int, mlp: int, *, vocab: int = 50_368, context: int = 8192
) -> ModelConfig:
    """Return ModernBERT (Warner et al. 2024): rotary positions, GeGLU, two layers with a window of
    128 tokens for each layer with full attention, and no biases except the head's."""
    return ModelConfig(
        vocab=vocab,
        layers=layers,
        hidden=hidden,
        context=context,
        causal=False,
        attention=heads_of(hidden, heads, window=65, window_pattern="FWW"),
        feed_forward=Dense(width=mlp, activation="geglu"),
        norm=Norm(kind="layer_no_bias", first=False),
        position=Rope(theta=160_000.0, window_theta=10_000.0),
        embedding=Embedding(norm=True),
        head=_HEAD,
    )


PRESETS = {
    "bert-tiny": partial(bert, 4, 192, 6, vocab=4096, context=256, dropout=0.0),
    "bert-base": partial(bert, 12, 768, 12),
    "bert-large": partial(bert, 24, 1024, 16),
    "bert-xlarge": partial(bert, 24, 2048, 32),  # Lan et al. 2020, whose baseline it is
    "mbert": partial(bert, 12, 768, 12, vocab=119_547),  # cased, of 104 languages
    "roberta-tiny": partial(roberta, 4, 192, 6, vocab=4096, context=256),
    "roberta-base": partial(roberta, 12, 768, 12),
    "roberta-large": partial(roberta, 24, 1024, 16),
    "xlm-r-base": partial(roberta, 12, 768, 12, vocab=250_002),  # Conneau et al. 2020
    "xlm-r-large": partial(roberta, 24, 1024, 16, vocab=250_002),
    "wangchanberta": partial(roberta, 12, 768, 12, vocab=25_005, context=416),
    # Sriwirote et al. 2023: WangchanBERTa with the foreign tokens of XLM-R.
    "phayathaibert": partial(roberta, 12, 768, 12, vocab=249_262, context=416),
    "longformer-tiny": partial(longformer, 4, 192, 6, 16, vocab=4096, context=256),
    "longformer-base": partial(longformer, 12, 768, 12, 256, context=4096),
    "longformer-large": partial(longformer, 24, 1024, 16, 256, context=4096),
    "bigbird-tiny": partial(bigbird, 4, 192, 6, block=8, vocab=4096, context=256),
    "bigbird-base": partial(bigbird, 12, 768, 12, block=64, vocab=50_358, context=4096),
    "bigbird-large": partial(bigbird, 24, 1024, 16, block=64, vocab=50_358, context=4096),
    "albert-tiny": partial(albert, 4, 192, 6, size=64, vocab=4096),
    "albert-base": partial(albert, 12, 768, 12),
    "albert-large": partial(albert, 24, 1024, 16),
    "albert-xlarge": partial(albert, 24, 2048, 32),
    "albert-xxlarge": partial(albert, 12, 4096, 64),
    "spanbert-base": partial(spanbert, 12, 768, 12),
    "spanbert-large": partial(spanbert, 24, 1024, 16),
    "deberta-tiny": partial(deberta_tiny, 4, 192, 6, vocab=4096, context=256, dropout=0.0),
    "deberta-base": partial(deberta, 12, 768, 12),
    "deberta-large": partial(deberta, 24, 1024, 16),
    "deberta-v3-small": partial(deberta_v3, 6, 768, 12),
    "deberta-v3-base": partial(deberta_v3, 12, 768, 12),
    "deberta-v3-large": partial(deberta_v3, 24, 1024, 16),
    "electra-tiny": partial(electra, 4, 192, 6, smaller=3, vocab=4096, context=256, dropout=0.0),
    "electra-small": partial(electra, 12, 256, 4, size=128),
    "electra-base": partial(electra, 12, 768, 12, smaller=3),
    "electra-large": partial(electra, 24, 1024, 16),
    "modernbert-tiny": partial(modernbert, 4, 192, 6, 256, vocab=4096, context=256),
    "modernbert-base": partial(modernbert, 22, 768, 12, 1152),
    "modernbert-large": partial(modernbert, 28, 1024, 16, 2624),
}

_BERT = Published(
    source="Devlin et al. 2019, appendix A.2; google-research/bert, optimization.py",
    note="nine in ten steps had rows of 128 tokens",
    optimizer="adamw",
    lr=1e-4,
    schedule="linear",
    lr_floor=0.0,
    warmup=10_000,
    rows=256,
    context=512,
    steps=1_000_000,
    beta1=0.9,
    beta2=0.999,
    eps=1e-6,
    weight_decay=0.01,
    clip=1.0,
)
_ROBERTA = replace(
    _BERT,
    source="Liu et al. 2019, table 9",
    note="it did not clip gradients",
    lr=6e-4,
    warmup=24_000,
    rows=8192,
    steps=500_000,
    beta2=0.98,
    clip=None,
)
_ALBERT = Published(
    source="Lan et al. 2020, section 4.1",
    note="its optimizer was LAMB, with lr 0.00176",
    rows=4096,
    context=512,
    steps=125_000,
)
TRAININGS = {
    "bert-base": _BERT,
    "bert-large": _BERT,
    "roberta-base": _ROBERTA,
    "roberta-large": replace(_ROBERTA, lr=4e-4, warmup=30_000),
    "wangchanberta": replace(
        _ROBERTA,
        source="Lowphansirikul et al. 2021, section 4; vistec-AI/thai2transformers, run_mlm.md",
        note="the model's card says 4,096 rows",
        lr=3e-4,
        rows=4092,
        context=416,
        beta2=0.999,
    ),
    **dict.fromkeys(("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"), _ALBERT),
}
