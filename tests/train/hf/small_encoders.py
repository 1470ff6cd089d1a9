"""Small encoders as transformers has them."""

from __future__ import annotations

from llmcurate.base.settings import change
from train.model.config import ModelConfig
from train.model.presets import preset

SMALL = {
    "vocab": 300, "hidden": 48, "context": 64, "dropout": 0.0,
    "attention": {"heads": 4, "kv_heads": 4, "head_dim": 12},
}  # fmt: skip


def small(name: str, **more) -> ModelConfig:
    return change(preset(name), SMALL | more, "model")
