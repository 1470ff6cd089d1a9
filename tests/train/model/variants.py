"""A small shape, and every choice of the transformer family on it."""

from __future__ import annotations

from typing import get_args, get_type_hints

from train.model.attention_settings import Grouped
from train.model.config import ModelConfig, Norm
from train.model.feed_forward_settings import ACTIVATIONS, Dense
from train.model.position_settings import POSITIONS


def choices(kind: type, name: str) -> tuple[str, ...]:
    """The values that a setting may have."""
    return get_args(get_type_hints(kind)[name])


SHAPE = ModelConfig(
    vocab=61,
    layers=2,
    hidden=32,
    context=32,
    attention=Grouped(heads=4, kv_heads=2, head_dim=8),
    feed_forward=Dense(width=48),
)

LATENT = {
    "kind": "latent",
    "heads": 4,
    "rank": 12,
    "rotary_dim": 4,
    "plain_dim": 8,
    "value_dim": 6,
}

VARIANTS: dict[str, dict] = {
    **{f"norm {value}": {"norm.kind": value} for value in choices(Norm, "kind")},
    **{
        f"place {value}": {"norm.place": value}
        for value in choices(Norm, "place")
        if value != "none"
    },
    **{f"bias {value}": {"attention.bias": value} for value in choices(Grouped, "bias")},
    "bias of feed-forward": {"feed_forward.bias": True},
    **{f"activation {value}": {"feed_forward.activation": value} for value in ACTIVATIONS},
    **{f"position {value}": {"position": value} for value in POSITIONS},
    "embedding norm": {"embedding.norm": True},
    "qk norm": {"attention.qk_norm": True},
    "head bias": {"head.bias": True},
    "head bias, untied": {"head.bias": True, "head.tied": False},
    "parallel": {"residual": "parallel"},
    "parallel, two norms": {"residual": "parallel", "residual.norms": 2},
    "rezero": {"residual": "rezero", "norm.place": "none"},
    "rezero with norms": {"residual": "rezero"},
    "deepnorm": {"residual": "deepnorm", "norm.place": "post"},
    "sandwich order": {"residual.sandwich": 1},
    "attention.window": {"attention.window": 5},
    "window, every other layer": {"attention.window": 5, "attention.window_pattern": "WF"},
    "window and sinks": {"attention.window": 5, "attention.sinks": 2},
    "dilated windows, by head and layer": {
        "attention": {"window": 3, "window_pattern": "WD", "dilations": (1, 3), "sinks": 1}
    },
    "segments": {"attention.segment": 5},
    "Transformer-XL": {"attention.segment": 7, "position": "distances", "norm.place": "post"},
    "alibi and window": {"position": "alibi", "attention.window": 5, "attention.sinks": 1},
    "t5 and window": {"position": "t5", "attention.window": 5},
    "partial rope": {"position.dim": 4},
    "MQA": {"attention.kv_heads": 1},
    "MHA": {"attention.kv_heads": 4},
    "narrow embedding": {"embedding.size": 12},
    "narrow embedding, as OPT-350m": {
        "embedding": {"size": 12, "bias": False, "positions": "after"},
        "position": "learned",
    },
    "latent": {"attention": LATENT},
    "latent, queries too": {"attention": LATENT | {"query_rank": 20}, "norm.place": "sandwich"},
    "latent, wide": {"attention": LATENT | {"rank": 40, "value_dim": 12}, "residual": "parallel"},
}
