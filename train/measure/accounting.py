"""The costs of a model: parameters, floating-point operations, bytes of its key-value cache;
and its row in a table of architectures."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch

from llmcurate.base.disk.units import counted
from train.config import TrainConfig, stages_of
from train.model.attention_settings import Latent, Sight
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.model.feed_forward_settings import Experts
from train.model.plugin_settings import OwnAttention, Plugin
from train.model.plugins import class_of
from train.model.position_settings import Rope
from train.model.presets import DECAYS
from train.model.roles import Role, roles
from train.objective_settings import Denoiser
from train.objectives.objectives import kind_of

BLOCKS = "stack.blocks."  # of the model, an encoder and a generator

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
    """Trained weights by part; a tied head costs nothing more than its bias."""

    embedding: int = 0
    positions: int = 0
    attention: int = 0
    feed_forward: int = 0
    norms: int = 0
    head: int = 0
    mtp: int = 0
    generator: int = 0
    other: int = 0
    JSON: ClassVar = (*__annotations__, "total")

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@lru_cache(maxsize=256)
def weights(config: ModelConfig) -> tuple[tuple[Role, int, int], ...]:
    """The role of each weight, how many numbers all of its kind have, and how many of these each
    token meets, which of shared blocks are more; a token of an encoder-decoder is one of its source
    and one of its target. Of the model's own modules, on a device without
    memory; where blocks are alike, one is built.
    """
    alike = config.norm.first and len(config.sparse) in (0, config.layers)
    alike = alike and not isinstance(config.residual, Plugin)  # whose blocks may differ by layer
    # A sandwich order is of all layers: of fewer there may be none.
    alike = alike and not getattr(config.residual, "sandwich", 0)
    built, own = config, config.encoder
    if alike:
        short = None if own is None else dataclasses.replace(own, layers=config.share)
        built = dataclasses.replace(config, layers=config.share, encoder=short)
    with torch.device("meta"):
        model = Decoder(built)
    rows = []
    for name, weight, role in roles(model):
        if name.startswith("mtp."):
            role = dataclasses.replace(role, part="mtp")
        if name.startswith("generator."):
            role = dataclasses.replace(role, part="generator")
        stack = config.reader if name.startswith("encoder.") else config
        inside = BLOCKS in name
        numbers = weight.numel() * (stack.layers // config.share if inside and alike else 1)
        # Source and target meet it.
        both = own is not None and own.shared and ".cross" not in name
        met = round(numbers * role.met) * (config.share * (1 + both) if inside else 1)
        rows.append((role, numbers, met))
    return tuple(rows)


def parts(config: ModelConfig) -> Parameters:
    """The parameters of each part."""
    by_part: Counter[str] = Counter()
    try:
        for role, numbers, _ in weights(config):
            by_part[role.part] += numbers
    except (RuntimeError, TypeError) as error:
        if "verflow" not in str(error):
            raise
        by_part["other"] = 1 << 64  # more than torch counts
    return Parameters(**by_part)


def parameters(config: ModelConfig) -> int:
    """All trained weights, a tied embedding counted once."""
    return parts(config).total


def non_embedding(config: ModelConfig) -> int:
    """Without the vectors of tokens and positions and the head, as Kaplan et al. 2020 count."""
    own = parts(config)
    return own.total - own.embedding - own.positions - own.head


def active_parameters(config: ModelConfig) -> int:
    """The weights that one token meets: of experts those it goes through, as papers count them,
    shared blocks once.
    """
    return sum(round(numbers * role.met) for role, numbers, _ in weights(config))


def matmul_parameters(config: ModelConfig) -> int:
    """Weights that multiply every token: the output head counts, again for each module that
    predicts a later one, the embedding lookup does not.
    """
    matrices = sum(met for role, _, met in weights(config) if role.use == "matrix")
    outputs, width = config.head_shape
    return matrices + (1 + config.head.mtp) * outputs * width


def attended(config: ModelConfig, layer: int, context: int) -> float:
    """Keys that a query sees on average in a full row of ``context`` tokens: causal attention
    counts each pair once, an encoder's twice, windows and segments what they let through; a class
    of a file may have an ``attended(config, context)`` of its own.
    """
    if isinstance(config.attention, OwnAttention):
        own = class_of(config.attention)
        if hasattr(own, "attended"):
            return float(own.attended(config, context))
    sight = config.attention.sight(layer)
    if sight.segment is not None:
        at = torch.arange(context)
        inside = at % sight.segment + 1
        return float((inside + (at >= sight.segment) * sight.segment).double().mean())
    if sight.window is None:
        return (context + 1) / 2 if config.causal else context
    steps = sight.dilations or (1,)
    return sum(_seen(sight, step, config.causal, context) for step in steps) / len(steps)


@lru_cache(maxsize=1024)
def _seen(sight: Sight, step: int, causal: bool, context: int) -> float:
    """The same of heads whose window goes by this step."""
    assert sight.window is not None
    blocks = -(-context // sight.block)
    at, most = torch.arange(blocks), sight.window - 1
    back = (at // step).clamp(max=most)
    ahead = torch.zeros_like(at) if causal else ((blocks - 1 - at) // step).clamp(max=most)
    first = torch.arange(min(blocks, max(sight.sinks, sight.globals)))[:, None]
    away = at - first
    apart = (away > 0) if causal else (away != 0)
    apart &= (away.abs() > most * step) | (away % step != 0)
    near = back + 1 + ahead + apart.sum(dim=0)
    near += (blocks - near).clamp(max=sight.random)
    near = torch.where(at < sight.globals, blocks, near)
    return float(near.double().mean()) * context / blocks


def attention_flops(config: ModelConfig, context: int) -> float:
    """Forward operations a token on scores and weighted sums: 2 x heads x (head_dim + value_dim) a
    key, which are the same but in latent attention; beside them what positions that are a
    part of attention cost.
    """
    keys = sum(attended(config, layer, context) for layer in range(config.layers))
    if config.encoder is not None:  # its own, and those of cross-attention
        reader = config.reader
        keys += sum(attended(reader, layer, context) for layer in range(reader.layers))
        keys += config.layers * context
    keys += config.head.mtp * attended(config, config.layers - 1, context)
    own, small = config.attention, config.generating
    beside = 0.0 if small is None else attention_flops(small, context)
    of_distances = config.position.flops_beside(config, context)
    beside += own.heads * own.head_dim * of_distances * config.layers
    return 2 * own.heads * (own.head_dim + own.value_dim) * keys + beside


def flops_per_token(config: ModelConfig, context: int) -> float:
    """Operations to train on one token of a full row, forward and backward.

    6 per matmul weight, and per layer 12 x heads x head_dim for each key attended to (6 x heads x
    (head_dim + value_dim) in latent attention): scores and weighted sum, 2 x 2 forward and twice
    that backward (Chowdhery et al. 2022, appendix B).
    Causal attention is counted once; document boundaries, which make it less, are not counted. Of
    an encoder-decoder it is a token of the target and one of the source, which is as long.
    """
    return 6 * matmul_parameters(config) + 3 * attention_flops(config, context)


def row_cost(config: ModelConfig, train: TrainConfig, context: int) -> tuple[int, float]:
    """Positions of a row, and the operations to train on it. Of an encoder-decoder they are those
    of its source, ``context``, and of its target, as many as the objective has.
    """
    per_token = flops_per_token(config, context)
    if config.encoder is None or not isinstance(train.objective, Denoiser):
        return context, context * per_token
    target = kind_of(train).targets(train.objective, context)
    own, reader = config.attention, config.reader
    of_pairs = config.layers * 2 * config.hidden * own.kv_heads * own.head_dim
    source = sum(met for role, _, met in weights(reader) if role.use == "matrix") + of_pairs
    keys = sum(attended(reader, layer, context) for layer in range(reader.layers)) * context
    keys += sum(attended(config, layer, target) for layer in range(config.layers)) * target
    keys += config.layers * context * target
    products = source * context + (matmul_parameters(config) - source) * target
    scores = 2 * own.heads * (own.head_dim + own.value_dim) * keys
    return context + target, 6 * products + 3 * scores


def run_cost(config: ModelConfig, train: TrainConfig, done: int = 0) -> tuple[int, float]:
    """Positions of all rows, and the operations to train on them, of the steps after ``done``."""
    positions, flops = 0, 0.0
    for stage in stages_of(train):
        steps = max(0, stage.steps - done)
        done = max(0, done - stage.steps)
        each, operations = row_cost(config, train, stage.context)
        positions += steps * stage.rows * each
        flops += steps * stage.rows * operations
    return positions, flops


def cache_bytes_per_token(config: ModelConfig, width: int = 2) -> int:
    """Bytes that one more token takes of keys and values, or of what latent attention makes them
    of, ``width`` bytes a number. Layers with a window stop growing once it is full; they are
    counted here.
    """
    return config.layers * config.attention.cached * width


def cache_bytes(config: ModelConfig, context: int) -> int:
    """Bytes of keys and values of one text, bfloat16; layers with a window keep that much, and
    cross-attention those of a source as long.
    """
    held = 0 if config.encoder is None else config.layers * context
    for most in (sight.kept for sight in config.sights):
        held += context if most is None else min(context, most)
    return 2 * config.attention.cached * held


def sharing(config: ModelConfig) -> str:
    """``MHA``, ``GQA 4:1`` or ``MQA``: how many queries share a key; or ``MLA``, where all keys are
    made of what is shared.
    """
    attention = config.attention
    if isinstance(attention, Latent):
        return "MLA"
    share = attention.heads // attention.kv_heads
    return "MHA" if share == 1 else "MQA" if attention.kv_heads == 1 else f"GQA {share}:1"


def architecture_row(config: ModelConfig, preset: str | None = None) -> dict[str, str]:
    """The model's row in a table of architectures; with the weight decay it was published with,
    where it is that preset.
    """
    attention, norms = config.attention, config.norm
    places = {"pre": "before", "post": "after", "sandwich": "before and after"}
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
        "all": "attention",
    }.get(attention.bias, "")
    biases += (", " if biases and biased else "") + ("feed-forward" if biased else "")
    decay = {}
    if preset is not None:
        decays = (value for start, value in DECAYS.items() if preset.startswith(start))
        decay["weight decay"] = next(decays, "not published")
    return {
        "norm": norm,
        **_encoder(config),
        "block": config.residual.kind,
        "position": _position(config),
        "attention": f"{sharing(config)}, {_sight(config)}"
        if not isinstance(attention, Plugin)
        else attention.kind,
        "feed-forward": f"{activation}, {width / config.hidden:.2f} x hidden" + _experts(config),
        "biases": {"attention, feed-forward": "all", "": "none"}.get(biases, biases),
        "head": "tied" if config.head.tied else "its own",
        "dropout": f"{config.dropout:g}",
        **decay,
    }


def _encoder(config: ModelConfig) -> dict[str, str]:
    own = config.encoder
    if own is None:
        return {}
    return {"encoder": counted(own.layers, "layer") + (", the decoder's" if own.shared else "")}


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
    if position.scaling is not None:
        text += f", {position.scaling.kind} x{position.scaling.factor:g}"
    return text


def _sight(config: ModelConfig) -> str:
    if segment := config.sights[0].segment:
        return f"segments of {segment}, and the one before"
    bounded = [sight for sight in config.sights if sight.window is not None]
    if not bounded:
        return "full"
    first = bounded[0]
    text = f"window {first.window}"
    if len(bounded) < config.layers:
        text += f" in {len(bounded)} of {config.layers} layers"
    if any(sight.dilations for sight in bounded):
        text += ", dilated"
    for name in ("sinks", "globals", "random"):
        text += f", {number} {name}" if (number := getattr(first, name)) else ""
    return text + (f", in blocks of {first.block}" if first.block > 1 else "")
