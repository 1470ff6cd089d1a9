"""A small shape, and every choice of the transformer family on it."""

from __future__ import annotations

from train.model.config import BIASES, MLPS, NORMS, PLACES, POSITIONS, ModelConfig

SHAPE = ModelConfig(
    vocab=61, layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, mlp_hidden=48, context=32
)


VARIANTS: dict[str, dict] = {
    **{f"norm {value}": {"norm": value} for value in NORMS},
    **{f"place {value}": {"norm_place": value} for value in PLACES},
    **{f"bias {value}": {"bias": value} for value in BIASES},
    **{f"mlp {value}": {"mlp": value} for value in MLPS},
    **{f"position {value}": {"position": value} for value in POSITIONS},
    "embedding norm": {"embedding_norm": True},
    "qk norm": {"qk_norm": True},
    "head bias": {"head_bias": True},
    "head bias, untied": {"head_bias": True, "tied_embeddings": False},
    "parallel": {"parallel": True},
    "parallel, two norms": {"parallel": True, "parallel_norms": 2},
    "window": {"window": 5},
    "window, every other layer": {"window": 5, "window_pattern": "WF"},
    "window and sinks": {"window": 5, "sinks": 2},
    "alibi and window": {"position": "alibi", "window": 5, "sinks": 1},
    "t5 and window": {"position": "t5", "window": 5},
    "partial rope": {"rope_dim": 4},
    "MQA": {"kv_heads": 1},
    "MHA": {"kv_heads": 4},
}
