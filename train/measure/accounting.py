"""The costs of a model (parameters, floating-point operations, bytes of its key-value cache), and
the model's row in a table of architectures.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch

from llmcurate.base.disk.units import counted
from train.config import TrainConfig, stages_of
from train.device import on_meta
from train.model.attention_settings import AttentionPattern, Latent
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Experts
from train.model.plugin_settings import OwnAttention, Plugin
from train.model.plugins import class_of
from train.model.position_settings import Rope
from train.model.roles import Role, roles
from train.objective_settings import Denoiser
from train.objectives.objectives import kind_of

TOKENS_PER_PARAMETER = 20.0  # Hoffmann et al. 2022, table 3, at about 10^21 operations
BLOCKS = "stack.blocks."  # in the model, its encoder and its generator

_NORMS = {
    "rms": "RMSNorm",
    "layer": "LayerNorm",
    "layer_no_bias": "LayerNorm without bias",
    "layer_plain": "LayerNorm without weights",
}
_ACTIVATIONS = {
    "relu": "ReLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "swish": "Swish",
    "relu2": "ReLU squared",
    "elu": "ELU",
    "selu": "SELU",
    "sigmoid": "sigmoid",
    "softplus": "softplus",
    "glu": "GLU",
    "geglu": "GeGLU",
    "geglu_tanh": "GeGLU (tanh)",
    "reglu": "ReGLU",
    "swiglu": "SwiGLU",
}


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The number of trained weights in each part. Of a tied head only the bias is counted."""

    embedding: int = 0
    positions: int = 0
    attention: int = 0
    feed_forward: int = 0
    norms: int = 0
    head: int = 0
    mtp: int = 0
    generator: int = 0
    other: int = 0
    JSON: ClassVar[tuple[str, ...]] = (*__annotations__, "total")

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@lru_cache(maxsize=256)
def weights(config: ModelConfig) -> tuple[tuple[Role, int, int], ...]:
    """Return (role, number of values, number of values active per token) for each weight. Weights
    of shared blocks count as active each time they are used. In an encoder-decoder, a source token
    and a target token together count as one token. The model is built without memory (on the meta
    device), and with only one of several equal blocks."""
    alike = config.norm.first and len(config.sparse) in (0, config.layers)
    # Blocks of a plugin may differ by layer; a sandwich order needs all layers.
    alike = alike and not isinstance(config.residual, Plugin)
    alike = alike and not getattr(config.residual, "sandwich", 0)
    built, own = config, config.encoder
    if alike:
        short = None if own is None else dataclasses.replace(own, layers=config.share)
        built = dataclasses.replace(config, layers=config.share, encoder=short)
    with on_meta():
        model = Decoder(built)
    rows = []
    for name, weight, role in roles(model):
        if name.startswith("mtp."):
            role = dataclasses.replace(role, part="mtp")
        if name.startswith("generator."):
            role = dataclasses.replace(role, part="generator")
        stack = config.encoder_config if name.startswith("encoder.") else config
        inside = BLOCKS in name
        numbers = weight.numel() * (stack.layers // config.share if inside and alike else 1)
        # A shared encoder processes source and target.
        both = own is not None and own.shared and ".cross" not in name
        active = round(numbers * role.active) * (config.share * (1 + both) if inside else 1)
        rows.append((role, numbers, active))
    return tuple(rows)


def parts(config: ModelConfig) -> Parameters:
    by_part: Counter[str] = Counter()
    try:
        for role, numbers, _ in weights(config):
            by_part[role.part] += numbers
    except (RuntimeError, TypeError) as error:
        if "verflow" not in str(error):
            raise
        by_part["other"] = 1 << 64  # some size is beyond torch's range
    return Parameters(**by_part)


def parameters(config: ModelConfig) -> int:
    """Return the number of trained weights; a tied embedding counts once."""
    return parts(config).total


def non_embedding(config: ModelConfig) -> int:
    """Count the weights without embeddings, positions and head (Kaplan et al. 2020)."""
    own = parts(config)
    return own.total - own.embedding - own.positions - own.head


def active_parameters(config: ModelConfig) -> int:
    """Count the weights that one token uses; shared blocks count once."""
    return sum(round(numbers * role.active) for role, numbers, _ in weights(config))


def matmul_parameters(config: ModelConfig) -> int:
    """Return the number of weights by which a token is multiplied. The embedding is looked up, so
    it does not count. The head counts 1 + ``head.mtp`` times: for the next token, and for each
    later token that the model predicts."""
    matrices = sum(active for role, _, active in weights(config) if role.use == "matrix")
    outputs, width = config.head_shape
    return matrices + (1 + config.head.mtp) * outputs * width


def attended(config: ModelConfig, layer: int, context: int) -> float:
    """Return the mean number of keys that a query attends to in a full row of ``context`` tokens. A
    class from a user's file may define its own ``attended(config, context)``."""
    if isinstance(config.attention, OwnAttention):
        own = class_of(config.attention)
        if hasattr(own, "attended"):
            return float(own.attended(config, context))
    pattern = config.attention.pattern(layer)
    if pattern.segment is not None:
        at = torch.arange(context)
        inside = at % pattern.segment + 1
        return float((inside + (at >= pattern.segment) * pattern.segment).double().mean())
    if pattern.window is None:
        return (context + 1) / 2 if config.causal else context
    steps = pattern.dilations or (1,)
    return sum(_in_window(pattern, step, config.causal, context) for step in steps) / len(steps)


@lru_cache(maxsize=1024)
def _in_window(pattern: AttentionPattern, step: int, causal: bool, context: int) -> float:
    assert pattern.window is not None
    blocks = -(-context // pattern.block)
    at, limit = torch.arange(blocks), pattern.window - 1
    back = (at // step).clamp(max=limit)
    ahead = torch.zeros_like(at) if causal else ((blocks - 1 - at) // step).clamp(max=limit)
    first = torch.arange(min(blocks, max(pattern.sinks, pattern.globals)))[:, None]
    distance = at - first
    outside = (distance > 0) if causal else (distance != 0)
    outside &= (distance.abs() > limit * step) | (distance % step != 0)
    attended_keys = back + 1 + ahead + outside.sum(dim=0)
    attended_keys += (blocks - attended_keys).clamp(max=pattern.random)
    attended_keys = torch.where(at < pattern.globals, blocks, attended_keys)
    return float(attended_keys.double().mean()) * context / blocks


def attention_flops(config: ModelConfig, context: int) -> float:
    """Return the forward operations per token for attention scores and weighted sums: 2 x heads x
    (head_dim + value_dim) per key, plus those for positions computed from distances."""
    keys = sum(attended(config, layer, context) for layer in range(config.layers))
    if config.encoder is not None:  # the encoder's own keys, and those of cross-attention
        reader = config.encoder_config
        keys += sum(attended(reader, layer, context) for layer in range(reader.layers))
        keys += config.layers * context
    keys += config.head.mtp * attended(config, config.layers - 1, context)
    own, small = config.attention, config.generator_config
    extra = 0.0 if small is None else attention_flops(small, context)
    of_distances = config.position.distance_flops(config, context)
    extra += own.heads * own.head_dim * of_distances * config.layers
    return 2 * own.heads * (own.head_dim + own.value_dim) * keys + extra


def flops_per_token(config: ModelConfig, context: int) -> float:
    """Return the operations to train on one token of a full row, forward and backward.

    Each weight of a matrix product takes 6. Each key attended to takes 12 x heads x head_dim per
    layer (6 x heads x (head_dim + value_dim) in latent attention): scores and weighted sum take 2
    each forward and twice that backward (Chowdhery et al. 2022, appendix B). Keys that a causal
    mask hides are not counted. Document boundaries, which reduce the cost, are ignored. In an
    encoder-decoder, a token is one target token plus one source token."""
    return 6 * matmul_parameters(config) + 3 * attention_flops(config, context)


def row_cost(config: ModelConfig, train: TrainConfig, context: int) -> tuple[int, float]:
    """Return (positions, operations to train), the numbers for a row of source and target."""
    per_token = flops_per_token(config, context)
    if config.encoder is None or not isinstance(train.objective, Denoiser):
        return context, context * per_token
    target = kind_of(train).targets(train.objective, context)
    own, reader = config.attention, config.encoder_config
    of_pairs = config.layers * 2 * config.hidden * own.kv_heads * own.head_dim
    source = sum(active for role, _, active in weights(reader) if role.use == "matrix") + of_pairs
    keys = sum(attended(reader, layer, context) for layer in range(reader.layers)) * context
    keys += sum(attended(config, layer, target) for layer in range(config.layers)) * target
    keys += config.layers * context * target
    products = source * context + (matmul_parameters(config) - source) * target
    scores = 2 * own.heads * (own.head_dim + own.value_dim) * keys
    return context + target, 6 * products + 3 * scores


def run_cost(config: ModelConfig, train: TrainConfig, done: int = 0) -> tuple[int, float]:
    """Return the positions and training operations of all steps after the first ``done`` steps."""
    positions, flops = 0, 0.0
    for stage in stages_of(train):
        steps = max(0, stage.steps - done)
        done = max(0, done - stage.steps)
        each, operations = row_cost(config, train, stage.context)
        positions += steps * stage.rows * each
        flops += steps * stage.rows * operations
    return positions, flops


def cache_bytes_per_token(config: ModelConfig) -> int:
    """Return the bytes cached for a token in all layers, in bfloat16."""
    return 2 * config.layers * config.attention.cached


def cache_bytes(config: ModelConfig, context: int) -> int:
    """Return the bytes of a text's cached keys and values in bfloat16. A layer with a window caches
    at most its window. Cross-attention also caches the keys and values of ``context`` source
    tokens."""
    cached_tokens = 0 if config.encoder is None else config.layers * context
    for limit in (pattern.cached_tokens for pattern in config.patterns):
        cached_tokens += context if limit is None else min(context, limit)
    return 2 * config.attention.cached * cached_tokens


def sharing(config: ModelConfig) -> str:
    """Return the kind of attention: ``MHA``, ``GQA 4:1``, ``MQA``, or ``MLA`` if it is latent."""
    attention = config.attention
    if isinstance(attention, Latent):
        return "MLA"
    share = attention.heads // attention.kv_heads
    return "MHA" if share == 1 else "MQA" if attention.kv_heads == 1 else f"GQA {share}:1"


def architecture_row(config: ModelConfig) -> dict[str, str]:
    """Return the model's row in a table of architectures."""
    attention, norms = config.attention, config.norm
    places = {"pre": "before", "post": "after", "out": "of outputs", "sandwich": "before and after"}
    where = places.get(norms.place, "in no block")
    norm = f"{_NORMS[norms.kind]}, {where}"
    norm += ", after the embedding" if config.embedding.norm else ""
    norm += ", of queries and keys" if attention.qk_norm else ""
    own = config.feed_forward
    activation = own.kind if isinstance(own, Plugin) else _ACTIVATIONS[own.activation]
    width, biased = config.feed_forward.width, config.feed_forward.bias
    biases = {
        "qkv": "queries, keys, values",
        "but_keys": "attention but for keys",
        "out": "attention output",
        "all": "attention",
    }.get(attention.bias, "")
    biases += (", " if biases and biased else "") + ("feed-forward" if biased else "")
    encoder: dict[str, str] = {}
    if (reader := config.encoder) is not None:
        shared = ", the decoder's" if reader.shared else ""
        encoder = {"encoder": counted(reader.layers, "layer") + shared}
    return {
        "norm": norm,
        **encoder,
        "block": config.residual.kind,
        "position": _position(config),
        "attention": f"{sharing(config)}, {_attention_span(config)}"
        if not isinstance(attention, Plugin)
        else attention.kind,
        "feed-forward": f"{activation}, {width / config.hidden:.2f} x hidden" + _experts(config),
        "biases": {"attention, feed-forward": "all", "": "none"}.get(biases, biases),
        "head": "tied" if config.head.tied else "its own",
        "hidden per layer": f"{config.hidden / config.layers:.0f}",
        "dropout": f"{config.dropout:g}",
    }


def _experts(config: ModelConfig) -> str:
    own = config.feed_forward
    if not isinstance(own, Experts):
        return ""
    text = f", {own.top_k} of {counted(own.count, 'expert')}"
    if own.shared_width:
        text += f", {own.shared_width / config.hidden:.2f} x hidden shared"
    layers = len(config.sparse)
    return text + (f", in {layers} of {config.layers} layers" if layers < config.layers else "")


def _position(config: ModelConfig) -> str:
    position = config.position
    if not isinstance(position, Rope):
        return position.kind if isinstance(position, Plugin) else position.title
    text = f"RoPE {position.theta:g}"
    if position.dim is not None:
        text += f", {position.dim} of {config.attention.head_dim}"
    if isinstance(config.attention, Latent):
        text += f", {config.attention.rotary_dim} of {config.attention.head_dim}"
    if config.unrotated:
        text += f", not in {len(config.unrotated)} of {config.layers} layers"
    if position.scaling is not None:
        text += f", {position.scaling.kind} x{position.scaling.factor:g}"
    return text


def _attention_span(config: ModelConfig) -> str:
    if segment := config.patterns[0].segment:
        return f"segments of {segment}, and the one before"
    bounded = [pattern for pattern in config.patterns if pattern.window is not None]
    if not bounded:
        return "full"
    first = bounded[0]
    text = f"window {first.window}"
    if len(bounded) < config.layers:
        text += f" in {len(bounded)} of {config.layers} layers"
    if any(pattern.dilations for pattern in bounded):
        text += ", dilated"
    for name in ("sinks", "globals", "random"):
        text += f", {number} {name}" if (number := getattr(first, name)) else ""
    return text + (f", in blocks of {first.block}" if first.block > 1 else "")
