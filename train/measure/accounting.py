"""The costs of a model: parameters, floating-point operations, bytes of its key-value cache;
and its row in a table of architectures."""

from __future__ import annotations

from dataclasses import dataclass

from train.model.config import MLPS, ModelConfig

_NORMS = {
    "rms": "RMSNorm",
    "layer": "LayerNorm",
    "layer_no_bias": "LayerNorm without bias",
    "layer_plain": "LayerNorm without weights",
}
_MLPS = {
    "relu": "ReLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "swish": "Swish",
    "relu2": "ReLU squared",
    "glu": "GLU",
    "geglu": "GeGLU",
    "geglu_tanh": "GeGLU (tanh)",
    "reglu": "ReGLU",
    "swiglu": "SwiGLU",
}
# As published with the models whose names begin so; it is a setting of training, 0.1 unless set.
_DECAYS = {
    "gpt2": "0.1",  # Stanford CS336, the table of dropout and weight decay
    "llama": "0.1",  # Touvron et al. 2023a, 2023b; Grattafiori et al. 2024
    "gptj": "0.1",  # mesh-transformer-jax, configs/6B_roto_256.json
    "gpt-neox": "0.01",  # Black et al. 2022
    "palm": "learning rate squared",  # Chowdhery et al. 2022
    "bloom": "0.1",  # Le Scao et al. 2022
    "opt": "0.1",  # Zhang et al. 2022
    "olmo": "0.1",  # Groeneveld et al. 2024
}


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


def architecture_row(config: ModelConfig, preset: str | None = None) -> dict[str, str]:
    """The model's row in a table of architectures; with the weight decay it was published with,
    where it is that preset.
    """
    where = {"pre": "before", "post": "after", "sandwich": "before and after"}[config.norm_place]
    share = config.heads // config.kv_heads
    kind = "MHA" if share == 1 else "MQA" if config.kv_heads == 1 else f"GQA {share}:1"
    norm = f"{_NORMS[config.norm]}, {where}"
    norm += ", after the embedding" if config.embedding_norm else ""
    norm += ", of queries and keys" if config.qk_norm else ""
    decay = {}
    if preset is not None:
        decays = (value for start, value in _DECAYS.items() if preset.startswith(start))
        decay["weight decay"] = next(decays, "not published")
    return {
        "norm": norm,
        "block": "parallel" if config.parallel else "serial",
        "position": _position(config),
        "attention": f"{kind}, {_sight(config)}",
        "feed-forward": f"{_MLPS[config.mlp]}, {config.mlp_hidden / config.hidden:.2f} x hidden",
        "biases": {"qkv": "queries, keys, values", "mlp": "feed-forward"}.get(
            config.bias, config.bias
        ),
        "head": "tied" if config.tied_embeddings else "its own",
        "dropout": f"{config.dropout:g}",
        **decay,
    }


def _position(config: ModelConfig) -> str:
    if config.position != "rope":
        names = {"alibi": "ALiBi", "t5": "T5 buckets", "none": "none"}
        return names.get(config.position, config.position)
    text = f"RoPE {config.rope_theta:g}"
    if config.rope_dim is not None:
        text += f", {config.rope_dim} of {config.head_dim}"
    if config.rope_scaling is not None:
        text += f", {config.rope_scaling.kind} x{config.rope_scaling.factor:g}"
    return text


def _sight(config: ModelConfig) -> str:
    if config.window is None:
        return "full"
    text = f"window {config.window}"
    if "F" in config.window_pattern:
        text += f" in {config.window_pattern.count('W')} of {len(config.window_pattern)} layers"
    return text + (f", {config.sinks} sinks" if config.sinks else "")
