"""The costs of a model: parameters, floating-point operations, bytes of its key-value cache."""

from __future__ import annotations

from dataclasses import dataclass

from train.model.config import MLPS, ModelConfig


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Trained weights by part; a tied head costs nothing more than its bias."""

    embedding: int
    positions: int
    attention: int
    mlp: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        return self.embedding + self.positions + self.attention + self.mlp + self.norms + self.head


def parts(config: ModelConfig) -> Parameters:
    """The parameters of each part, from the configuration alone."""
    width = (config.heads + 2 * config.kv_heads) * config.head_dim
    out = config.heads * config.head_dim
    attention = config.hidden * (width + out)
    attention += width if config.bias in ("all", "qkv") else 0
    attention += config.hidden if config.bias == "all" else 0
    gates = 2 if MLPS[config.mlp][1] else 1
    mlp = (gates + 1) * config.hidden * config.mlp_hidden
    if config.bias in ("all", "mlp"):
        mlp += gates * config.mlp_hidden + config.hidden
    each = {"rms": 1, "layer": 2, "layer_no_bias": 1, "layer_plain": 0}[config.norm]
    count = 4 if config.norm_place == "sandwich" else 2
    if config.parallel:
        count = config.parallel_norms
    norms = config.layers * count * each * config.hidden
    norms += (config.norm_place != "post") * each * config.hidden
    norms += config.embedding_norm * each * config.hidden
    norms += config.qk_norm * 2 * config.layers * config.head_dim
    positions = 0
    if config.position == "learned":
        positions = (config.context + config.learned_offset) * config.hidden
    if config.position == "t5":
        positions = config.t5_buckets * config.heads
    head = 0 if config.tied_embeddings else config.hidden * config.vocab
    return Parameters(
        embedding=config.vocab * config.hidden,
        positions=positions,
        attention=config.layers * attention,
        mlp=config.layers * mlp,
        norms=norms,
        head=head + config.head_bias * config.vocab,
    )


def parameters(config: ModelConfig) -> int:
    """All trained weights, a tied embedding counted once."""
    return parts(config).total


def matmul_parameters(config: ModelConfig) -> int:
    """Weights that multiply every token: the output head counts, the embedding lookup does not."""
    attention = 2 * config.hidden * config.head_dim * (config.heads + config.kv_heads)
    mlp = (3 if MLPS[config.mlp][1] else 2) * config.hidden * config.mlp_hidden
    return config.layers * (attention + mlp) + config.hidden * config.vocab


def attended(config: ModelConfig, layer: int, context: int) -> float:
    """Keys that a query sees on average in a full row of ``context`` tokens: causal attention
    counts each pair once, a window what it lets through.
    """
    window = config.window_of(layer)
    total = context * (context + 1) // 2
    if window is None or window >= context:
        return total / context
    hidden = context - window  # the last query misses so many keys, the one before one less, ...
    seen = total - hidden * (hidden + 1) // 2
    back = min(config.sinks, hidden)  # of those, the sinks are seen
    seen += back * (hidden - back) + back * (back + 1) // 2
    return seen / context


def attention_flops(config: ModelConfig, context: int) -> float:
    """Forward operations a token on scores and weighted sums: 4 x heads x head_dim a key."""
    keys = sum(attended(config, layer, context) for layer in range(config.layers))
    return 4 * config.heads * config.head_dim * keys


def flops_per_token(config: ModelConfig, context: int) -> float:
    """Operations to train on one token of a full row, forward and backward.

    6 per matmul weight, and per layer 12 x heads x head_dim for each key attended to: scores and
    weighted sum, 2 x 2 forward and twice that backward (Chowdhery et al. 2022, appendix B).
    Causal attention is counted once; document boundaries, which make it less, are not counted.
    """
    return 6 * matmul_parameters(config) + 3 * attention_flops(config, context)


def cache_bytes_per_token(config: ModelConfig, width: int = 2) -> int:
    """Bytes of keys and values that one more token takes, ``width`` bytes a number. Layers with a
    window stop growing once it is full; they are counted here.
    """
    return 2 * config.layers * config.kv_heads * config.head_dim * width
