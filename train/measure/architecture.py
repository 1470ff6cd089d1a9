"""A model as a row in a table of architectures."""

from __future__ import annotations

from train.model.config import ModelConfig

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


def row(config: ModelConfig, preset: str | None = None) -> dict[str, str]:
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
