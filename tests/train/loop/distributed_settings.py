"""Settings of trainings in several processes."""

from __future__ import annotations

from train.config import TrainConfig
from train.model.attention_settings import Grouped
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Dense

MODEL = ModelConfig(
    vocab=300,
    layers=2,
    hidden=32,
    context=32,
    dropout=0.1,
    attention=Grouped(heads=4, kv_heads=2, head_dim=8),
    feed_forward=Dense(width=64),
)

TRAIN = TrainConfig(
    steps=8,
    rows=4,
    context=32,
    warmup=3,
    schedule="constant",
    eval_every=4,
    checkpoint_every=4,
    device="cpu",
)

ALONE = {"replicas": 1, "tensor": 1, "offload": False}  # one process
