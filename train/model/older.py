"""Checkpoints before version 4: today's names of their settings and weights."""

from __future__ import annotations

import re
from typing import Any

from train.model.attention_settings import BIASES
from train.model.config import ModelConfig
from train.settings import from_dict, unflat

_SETTINGS = {
    **{name: f"attention.{name}" for name in ("heads", "kv_heads", "head_dim", "qk_norm")},
    **{name: f"attention.{name}" for name in ("window", "window_pattern", "sinks")},
    "mlp_hidden": "feed_forward.width",
    "mlp": "feed_forward.activation",
    "norm": "norm.kind",
    "norm_place": "norm.place",
    "norm_eps": "norm.eps",
    "embedding_norm": "embedding.norm",
    "tied_embeddings": "head.tied",
    "head_bias": "head.bias",
    "position": "position.kind",
}
_OF_POSITIONS = {
    "rope": {"rope_theta": "theta", "rope_dim": "dim", "rope_scaling": "scaling"},
    "learned": {"learned_offset": "offset"},
    "t5": {"t5_buckets": "buckets", "t5_distance": "distance"},
}
# Names of weights before version 4, behind the name of an optimiser's state or not.
_WEIGHTS = tuple(
    (re.compile(old), new)
    for old, new in (
        (r"^((?!embedding\.|stack\.)\w+\.)?norm\.", r"\1stack.norm."),
        (r"(^|\.)(position_embedding\.weight|relative)$", r"\1stack.positions.weight"),
        (r"(^|\.)embedding_norm\.", r"\1embedding.norm."),
        (r"(^|\.)head_bias$", r"\1head.bias"),
        (r"(?<!stack\.)\bblocks\.", r"stack.blocks."),
        (r"\.mlp(\.|_)", r".feed_forward\1"),
    )
)


def model_config(values: Any, where: str) -> ModelConfig:
    """A configuration from parsed JSON, today's or that of checkpoints before version 4, in which
    all settings stood side by side. Raises ``TrainError``.
    """
    old = isinstance(values, dict) and "heads" in values
    return from_dict(ModelConfig, _upgraded(values) if old else values, where)


def _upgraded(flat: dict[str, Any]) -> dict[str, Any]:
    renamed = _OF_POSITIONS.get(flat.get("position", "rope"), {})
    names = _SETTINGS | {old: f"position.{new}" for old, new in renamed.items()}
    other = {old for names in _OF_POSITIONS.values() for old in names}
    other |= {"bias", "parallel", "parallel_norms"}
    values = {names.get(n, n): v for n, v in flat.items() if n in names or n not in other}
    bias = flat.get("bias", "none")
    values["attention.bias"] = bias if bias in BIASES else "none"
    values["feed_forward.bias"] = bias in ("all", "mlp")
    if flat.get("parallel"):
        values |= {"residual.kind": "parallel", "residual.norms": flat.get("parallel_norms", 1)}
    return unflat(values)


def current_name(name: str) -> str:
    """Today's name of a tensor of an earlier version."""
    for old, new in _WEIGHTS:
        name = old.sub(new, name)
    return name
