"""Settings of trainings with experts."""

from __future__ import annotations

from llmcurate.base.settings import change
from tests.train.model.variants import SHAPE
from train.config import TrainConfig

DENSE = change(SHAPE, {"vocab": 300}, "model")

MODEL = change(
    DENSE, {"feed_forward": {"kind": "experts", "count": 4, "width": 20, "router_z": 0.01}}, "model"
)

TRAIN = TrainConfig(
    steps=6,
    rows=4,
    context=32,
    lr=3e-3,
    warmup=2,
    eval_every=3,
    eval_tokens=200,
    checkpoint_every=3,
    log_every=3,
    device="cpu",
)
