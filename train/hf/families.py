"""All families, and the one that says a configuration."""

from __future__ import annotations

from typing import Any

from train.errors import TrainError
from train.hf.family import Family, traits
from train.hf.gpt import BLOOM, GPT2, GPT_NEOX, GPTJ, OPT
from train.hf.llama import LLAMA, MINISTRAL, MISTRAL, OLMO, QWEN2, QWEN3
from train.model.config import ModelConfig
from train.settings import to_dict

# The first that can say a configuration is taken.
FAMILIES = {
    family.name: family
    for family in (LLAMA, MISTRAL, MINISTRAL, QWEN2, QWEN3, OLMO, GPT2, GPTJ, GPT_NEOX, BLOOM, OPT)
}


def family_of(config: ModelConfig) -> Family:
    """The family whose class computes what ``config`` does; ``TrainError`` names what stands in
    the way, and the family nearest to it.
    """
    nearest = min(FAMILIES.values(), key=lambda family: len(family.obstacles(config)))
    in_the_way = nearest.obstacles(config)
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
