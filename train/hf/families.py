"""The families of transformers' models, and the choice of a family for a model's settings."""

from __future__ import annotations

from typing import Any

from llmcurate.base.errors import UsageError
from llmcurate.base.index import modules_of
from llmcurate.base.settings import flatten, to_dict
from train.hf import gpt, llama
from train.hf.family import Family
from train.model.config import ModelConfig
from train.model.encodings.disentangled import Disentangled
from train.model.feed_forward_settings import Experts
from train.model.plugins import plugins
from train.model.position_settings import Rope

# The modules of families; the first family that supports a configuration is used.
_MODULES = (llama, gpt, *modules_of("train.lab.hf"))
_FOUND = (own for module in _MODULES for own in vars(module).values() if isinstance(own, Family))
FAMILIES = {family.name: family for family in _FOUND}

Trait = str | int | float | bool | None
_TRAITS = {trait for family in FAMILIES.values() for trait in family.allows}
_COUNTS = ("sinks", "globals", "random", "block")
# Which linear layers have a bias, by attention.bias and feed_forward.bias.
_BIASES = {
    ("none", False): "none",
    ("qkv", False): "qkv",
    ("all", False): "attention",
    ("but_keys", False): "attention but for keys",
    ("none", True): "feed-forward",
    ("qkv", True): "qkv and feed-forward",
    ("all", True): "all",
    ("but_keys", True): "all but keys",
}


def traits(config: ModelConfig) -> dict[str, Trait]:
    """Return the traits of a model that decide which family of transformers' models can hold it. A
    trait has the name of the setting that a user would change."""
    shape, position, patterns = config.attention, config.position, set(config.patterns)
    windows = {pattern.window for pattern in patterns}
    window = "none" if windows == {None} else "some layers" if None in windows else "every layer"
    rope = position if isinstance(position, Rope) else Rope()
    # NTK scaling only changes theta.
    scaled = rope.scaling is not None and rope.scaling.kind != "ntk"
    theta = rope.scaling is not None or rope.theta != 10_000.0
    four_times = config.feed_forward.width == 4 * config.hidden
    distances = position if isinstance(position, Disentangled) else Disentangled()
    return {
        **{name: value for name, value in flatten(to_dict(config)).items() if name in _TRAITS},
        **_expert_traits(config),
        "encoder": _encoder(config),
        "share": "none" if config.share == 1 else "all or groups of blocks",
        "embedding.size": _embedding(config),
        "head.task": "none" if config.head.task is None else config.head.task.kind,
        "position.window_theta": "theta" if rope.window_theta is None else "other than theta",
        "mup_base": None if config.width_ratio == 1 else config.mup_base,
        "norm.eps": "1e-5" if config.norm.eps == 1e-5 else "other",
        "bias": _BIASES[shape.bias, config.feed_forward.bias],
        "feed_forward.width": "4 x hidden" if four_times else "other",
        "attention.kv_heads": "heads" if shape.kv_heads == shape.heads else "fewer than heads",
        "attention.head_dim": _head_dim(config),
        "attention.window": window,
        **{f"attention.{name}": max(getattr(each, name) for each in patterns) for name in _COUNTS},
        "attention.segment": "none" if {each.segment for each in patterns} == {None} else "some",
        "attention.dilations": "some" if any(each.dilations for each in patterns) else "none",
        "position.dim": "a part of head_dim" if 0 < config.rotated < shape.head_dim else "head_dim",
        "position.scaling": scaled,
        "position.theta": "other" if theta else "10000",
        "position.buckets": "none" if distances.buckets is None else "some",
    }


def _encoder(config: ModelConfig) -> str:
    own = config.encoder
    return "none" if own is None else "the decoder's weights" if own.shared else "own weights"


def _embedding(config: ModelConfig) -> str:
    own = config.embedding
    if own.size is None:
        return "hidden"
    if own.bias and own.positions == "before":
        return "other than hidden"
    inside = not own.bias and own.positions == "after" and config.head.tied
    return "other than hidden, as OPT" if inside else "other than hidden, otherwise"


def _expert_traits(config: ModelConfig) -> dict[str, Trait]:
    own = config.feed_forward
    if not isinstance(own, Experts):
        return {}
    ranks = min(own.group_best, own.count // own.groups)
    shared = "other" if own.shared_width % own.width else "a multiple of width"
    return {
        "feed_forward.scale": "1" if own.scale == 1 else "other",
        "feed_forward.groups": f"by the best {ranks}" if own.top_groups < own.groups else "none",
        "feed_forward.shared_width": shared if own.shared_width else "none",
        "feed_forward.bias_rate": "some" if own.bias_rate else "none",
    }


def _head_dim(config: ModelConfig) -> str:
    heads = config.attention.heads
    if config.attention.head_dim * heads == config.hidden:
        return "hidden / heads"
    return "other" if config.hidden % heads == 0 else "other, heads not dividing hidden"


def obstacles(family: Family, config: ModelConfig) -> list[str]:
    """Return the names of the model's traits that a family does not support."""
    return [name for name, value in traits(config).items() if value not in family.allowed(name)]


def family_of(config: ModelConfig) -> Family:
    """Return the family whose class computes the model ``config``. If there is no such family,
    raises an ``LlmcurateError`` that names the nearest one."""
    for name, part in plugins(config).items():
        raise UsageError(f"no class of transformers computes {name} {part.kind}, which is a plugin")
    nearest = min(FAMILIES.values(), key=lambda family: len(obstacles(family, config)))
    not_allowed = obstacles(nearest, config)
    if not not_allowed:
        return nearest
    raise UsageError(
        f"no class of transformers is known for this model: nearest is {nearest.name}, but for "
        + ", ".join(_shown(config, nearest, name) for name in not_allowed)
    )


def _shown(config: ModelConfig, family: Family, name: str) -> str:
    value: Any = to_dict(config)
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    value = traits(config)[name] if value is None or isinstance(value, dict) else value
    allowed = " or ".join(str(choice) for choice in family.allowed(name))
    return f"{name} {value} (expected {allowed})"
