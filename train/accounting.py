"""What a model costs: parameters and floating-point operations."""

from __future__ import annotations

from train.model.config import ModelConfig


def matmul_parameters(config: ModelConfig) -> int:
    """Weights that multiply every token: the output head counts, the embedding lookup does not."""
    attention = 2 * config.hidden * config.head_dim * (config.heads + config.kv_heads)
    mlp = 3 * config.hidden * config.mlp_hidden
    return config.layers * (attention + mlp) + config.hidden * config.vocab


def parameters(config: ModelConfig) -> int:
    """All trained weights, a tied embedding counted once."""
    norms = (2 * config.layers + 1) * config.hidden
    untied = 0 if config.tied_embeddings else config.hidden * config.vocab
    return matmul_parameters(config) + norms + untied


def flops_per_token(config: ModelConfig, attended: float) -> float:
    """Operations to train on one token, forward and backward.

    6 per matmul weight, and per layer 12 x heads x head_dim for each key attended to: scores and
    weighted sum, 2 x 2 forward and twice that backward (Chowdhery et al. 2022, appendix B).
    ``attended`` is the mean number of keys a query sees: (context + 1) / 2 for causal attention
    over a full row, so causal work is counted once; less with document boundaries.
    """
    attention = 12 * config.layers * config.heads * config.head_dim * attended
    return 6 * matmul_parameters(config) + attention
