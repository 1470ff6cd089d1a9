"""Published sizes, and our own, as plain functions of vocabulary and context."""

from __future__ import annotations

from collections.abc import Callable

from train.errors import TrainError
from train.model.config import ModelConfig


def tiny(vocab: int, context: int = 256) -> ModelConfig:
    """About 2.5 million parameters at a vocabulary of 4096: a minute on two CPU cores."""
    return ModelConfig(
        vocab=vocab,
        context=context,
        layers=4,
        hidden=192,
        heads=6,
        kv_heads=2,
        head_dim=32,
        mlp_hidden=512,
    )


def small(vocab: int, context: int = 512) -> ModelConfig:
    """About 9 million parameters at a vocabulary of 8192: minutes on one GPU."""
    return ModelConfig(
        vocab=vocab,
        context=context,
        layers=4,
        hidden=384,
        heads=6,
        kv_heads=2,
        head_dim=64,
        mlp_hidden=1024,
    )


PRESETS: dict[str, Callable[[int, int], ModelConfig]] = {"tiny": tiny, "small": small}


def preset(name: str, *, vocab: int, context: int) -> ModelConfig:
    """The preset called ``name`` for a vocabulary and a context; raises ``TrainError``."""
    if name not in PRESETS:
        raise TrainError(f"model {name!r}: choose one of {', '.join(PRESETS)}", exit_code=2)
    return PRESETS[name](vocab, context)
