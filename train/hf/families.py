"""The families of transformers' models, and the one that can say a configuration."""

from __future__ import annotations

from typing import Any

from train.errors import TrainError
from train.hf.family import Family
from train.hf.gpt import BLOOM, GPT2, GPT_NEOX, GPTJ, OPT
from train.hf.llama import LLAMA, MINISTRAL, MISTRAL, OLMO, QWEN2, QWEN3
from train.model.config import ModelConfig
from train.settings import to_dict

# The first that can say a configuration is taken.
FAMILIES = {
    family.name: family
    for family in (LLAMA, MISTRAL, MINISTRAL, QWEN2, QWEN3, OLMO, GPT2, GPTJ, GPT_NEOX, BLOOM, OPT)
}


def traits(config: ModelConfig) -> dict[str, Any]:
    """What decides the family, by the setting that the user would change."""
    windows = {config.window_of(layer) for layer in range(config.layers)}
    window = "none" if windows == {None} else "some layers" if None in windows else "every layer"
    scaling = config.rope_scaling
    # An NTK-scaled rotation is one with another theta.
    scaled = scaling is not None and scaling.kind != "ntk"
    theta = scaling is not None or config.rope_theta != 10_000.0
    return {
        "norm": config.norm,
        "norm_place": config.norm_place,
        "norm_eps": "1e-5" if config.norm_eps == 1e-5 else "other",
        "embedding_norm": config.embedding_norm,
        "qk_norm": config.qk_norm,
        "bias": config.bias,
        "head_bias": config.head_bias,
        "mlp": config.mlp,
        "mlp_hidden": "4 x hidden" if config.mlp_hidden == 4 * config.hidden else "other",
        "parallel": config.parallel,
        "parallel_norms": config.parallel_norms if config.parallel else 1,
        "kv_heads": "heads" if config.kv_heads == config.heads else "fewer than heads",
        "head_dim": _head_dim(config),
        "window": window,
        "sinks": config.sinks if window != "none" else 0,
        "position": config.position,
        "rope_dim": "a part of head_dim" if config.rotated != config.head_dim else "head_dim",
        "rope_scaling": scaled,
        "rope_theta": "other" if theta else "10000",
        "learned_offset": config.learned_offset if config.position == "learned" else 0,
    }


def _head_dim(config: ModelConfig) -> str:
    if config.head_dim * config.heads == config.hidden:
        return "hidden / heads"
    return "other" if config.hidden % config.heads == 0 else "other, heads not dividing hidden"


def obstacles(family: Family, config: ModelConfig) -> list[str]:
    """The traits that a family cannot say."""
    return [
        name for name, value in traits(config).items() if value not in family.allows.get(name, ())
    ]


def family_of(config: ModelConfig) -> Family:
    """The family whose class computes what ``config`` does; ``TrainError`` names what stands in
    the way, and the family nearest to it.
    """
    nearest = min(FAMILIES.values(), key=lambda family: len(obstacles(family, config)))
    in_the_way = obstacles(nearest, config)
    if not in_the_way:
        return nearest
    raise TrainError(
        f"no class of transformers is known for this model: nearest is {nearest.name}, but for "
        + ", ".join(_shown(config, nearest, name) for name in in_the_way),
        exit_code=2,
    )


def _shown(config: ModelConfig, family: Family, name: str) -> str:
    """``setting value (theirs ...)``, the value in the user's own numbers where it has one."""
    value: Any = to_dict(config).get(name)
    value = traits(config)[name] if value is None or isinstance(value, dict) else value
    wanted = " or ".join(str(choice) for choice in family.allows.get(name, ()))
    return f"{name} {value} (there: {wanted})"
