"""Small encoder-decoders as transformers has them."""

from __future__ import annotations

import torch

from llmcurate.base.settings import change
from tests.train.loop.small_runs import build
from train.model.attention_settings import Grouped
from train.model.config import Embedding, Encoder, Head, ModelConfig, Norm
from train.model.decoder import Decoder
from train.model.encodings.t5 import Buckets
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Learned

T5 = ModelConfig(
    vocab=300,
    layers=2,
    hidden=64,
    context=64,
    attention=Grouped(heads=3, kv_heads=3, head_dim=16),
    feed_forward=Dense(width=80, activation="relu"),
    norm=Norm(eps=1e-6),
    position=Buckets(buckets=12, distance=20),
    encoder=Encoder(layers=3),
)

T5_1_1 = change(T5, {"head.tied": False, "feed_forward.activation": "geglu_tanh"}, "model")

BART = ModelConfig(
    vocab=300,
    layers=3,
    hidden=48,
    context=64,
    attention=Grouped(heads=4, kv_heads=4, head_dim=12, bias="all"),
    feed_forward=Dense(width=80, activation="gelu", bias=True),
    norm=Norm(kind="layer", place="post"),
    position=Learned(offset=2),
    embedding=Embedding(norm=True),
    head=Head(bias=True),
    encoder=Encoder(layers=2, learns="bart"),
)

CASES = {
    "t5": T5,
    "t5 1.1": T5_1_1,
    "t5, silu": change(T5, {"feed_forward.activation": "swiglu", "encoder.start": 7}, "model"),
    "bart": BART,
    "bart that starts with another token": change(BART, {"encoder.start": 5}, "model"),
}


def spread(config: ModelConfig) -> Decoder:
    """Less than elsewhere: gates multiply what rounding does to 15 parts one after the other."""
    model = build(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.7 if weight.dim() > 1 else 1.0)
    return model
