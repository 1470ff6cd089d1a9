"""The families of transformers' models, and the choice of a family for a model's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from llmcurate.base.errors import UsageError
from llmcurate.base.index import modules_of
from llmcurate.base.settings import flatten, to_dict
from train.hf import gpt, llama
from train.hf.family import Family
from train.hf.rope import rope_keys
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Experts
from train.model.plugins import plugins
from train.model.position_settings import Rope

# The modules of families; the first family that supports a configuration is used.
_MODULES = (llama, gpt, *modules_of("train.lab.hf"))
_FOUND = (own for module in _MODULES for own in vars(module).values() if isinstance(own, Family))
FAMILIES = {family.name: family for family in _FOUND}

# Settings that training alone needs, or that decoding alone needs.
_OTHER = re.compile(
    r"dropout|zero_projections|embedding\.std|encoder\.(start|learns)|head\.task\.(?!before).*|attention\.seed|"
    r"feed_forward\.(balance|device_balance|router_z|jitter|random_second|capacity)"
)
_COUNTS = ("sinks", "globals", "random", "block")


def _decisive(config: ModelConfig) -> dict[str, Any]:
    """Return {dotted name: value} of the settings that decide what a model computes. Settings that
    are written differently but have the same effect get the same values."""
    config = config.trunk
    values, position, own = to_dict(config), config.position, config.feed_forward
    values["mup_base"] = None if config.width_ratio == 1 else config.mup_base
    patterns = config.patterns
    values["attention"] |= {
        "window_pattern": None,
        "window": config.windows if len({*config.windows}) > 1 else config.windows[0],
        "dilations": [pattern.dilations for pattern in patterns],
        **{name: max(getattr(each, name) for each in patterns) for name in _COUNTS},
    }
    if isinstance(position, Rope):
        (_, theta), (_, scaling) = rope_keys(config)
        local = position.window_theta if any(config.windows) else None
        # Layers with a window are stretched like the others, unless they have their own base.
        stretched = scaling is not None and any(config.windows)
        values["position"] |= {
            "dim": config.rotated,
            "theta": theta,
            "scaling": scaling,
            "window_theta": local or (None if stretched else theta),
            "pattern": config.unrotated,
        }
    if isinstance(own, Experts):
        dense = len(config.sparse) < config.layers
        values["feed_forward"] |= {
            "bias_rate": 0.001 if own.bias_rate else 0.0,  # files do not store it
            "dense_width": (own.dense_width or own.width) if dense else None,
            "group_best": min(own.group_best, own.count // own.groups),
        }
        if own.top_groups == own.groups:
            values["feed_forward"] |= {"groups": 1, "top_groups": 1, "group_best": 1}
    if config.embedding.size is None:
        values["embedding"] |= {"bias": True, "positions": "before"}
    return {name: value for name, value in flatten(values).items() if not _OTHER.fullmatch(name)}


def obstacles(family: Family, config: ModelConfig) -> dict[str, Any]:
    """Return {name: value} of the model settings that ``family`` cannot express: they change when
    written to a config.json and read back. The values are those read back. If the result is empty,
    the class in transformers computes the same function as our model."""
    task, lacking = config.head.task, dict[str, Any]()
    if task is not None and task.kind not in family.tasks:
        lacking = {"head.task": " or ".join(("none", *family.tasks))}
        config = replace(config, head=replace(config.head, task=None))
    before, back = _decisive(config), family.read_back(config)
    after = {} if back is None else _decisive(back)
    changed = {name: after.get(name) for name in before if before[name] != after.get(name)}
    kinds = {name.removesuffix("kind") for name in changed if name.endswith(".kind")}
    return lacking | {  # of a part of another kind, the kind alone
        name: value
        for name, value in changed.items()
        if name.endswith(".kind") or not name.startswith(tuple(kinds))
    }


def family_of(
    config: ModelConfig,
    families: Iterable[Family] = tuple(FAMILIES.values()),
    kind: str = "class of transformers",
) -> Family:
    """Return the first of ``families`` that computes the model ``config``. ``kind``: what messages
    call a family. Raises an ``LlmcurateError`` that names the nearest family if none does."""
    for name, part in plugins(config).items():
        raise UsageError(f"no {kind} computes {name} {part.kind}, which is a plugin")
    by_family: dict[str, dict[str, Any]] = {}
    for family in families:
        by_family[family.name] = obstacles(family, config)
        if not by_family[family.name]:
            return family
    nearest = min(by_family, key=lambda name: len(by_family[name]))
    own = _decisive(config) | {"head.task": config.head.task and config.head.task.kind}
    raise UsageError(
        f"no {kind} is known for this model: nearest is {nearest}, but for "
        + ", ".join(
            f"{name} {own[name]} (expected {value})" for name, value in by_family[nearest].items()
        )
    )
