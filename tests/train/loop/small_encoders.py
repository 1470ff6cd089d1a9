"""Settings of small trainings of encoders."""

from __future__ import annotations

from llmcurate.base.settings import change
from train.config import TrainConfig
from train.model.presets import preset

SMALL = {
    "vocab": 302, "hidden": 32, "layers": 2, "context": 33, "feed_forward.width": 64,
    "attention": {"heads": 4, "kv_heads": 4, "head_dim": 8},
}  # fmt: skip

TRAIN = TrainConfig(
    steps=12, rows=4, context=33, warmup=3, eval_every=6, checkpoint_every=5, device="cpu"
)

MODELS = {
    "bert-tiny": {"dropout": 0.1},
    "roberta-tiny": {},
    "albert-tiny": {"share": 2, "embedding.size": 16, "dropout": 0.1},
    "deberta-tiny": {"dropout": 0.1, "position.span": 8},
    "electra-tiny": {"dropout": 0.1, "generator.smaller": 2},
    "modernbert-tiny": {},
}


def small(name: str):
    return change(preset(name), SMALL | MODELS[name], "model")
