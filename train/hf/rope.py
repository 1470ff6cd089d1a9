"""Rotary positions in config.json: ``rope_theta`` and ``rope_scaling``, or ``rope_parameters``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llmcurate.base.settings import to_dict
from train.hf.settings import Settings
from train.model.config import ModelConfig
from train.model.position_settings import Rope, RopeScaling
from train.model.rope import rope_frequencies, temperature


def written(config: ModelConfig) -> dict[str, Any]:
    """``rope_theta`` and ``rope_scaling``, in the keys that every version of transformers reads."""
    assert isinstance(config.position, Rope)
    theta, scaling = config.position.theta, config.position.scaling
    if scaling is None:
        return {"rope_theta": theta, "rope_scaling": None}
    if scaling.kind == "ntk":  # nothing but another theta
        theta *= scaling.factor ** (config.rotated / (config.rotated - 2))
        return {"rope_theta": theta, "rope_scaling": None}
    values: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind != "linear":
        values["original_max_position_embeddings"] = scaling.original_context
    if scaling.kind in ("yarn", "longrope"):
        values["attention_factor"] = rope_frequencies(config)[1]
    if scaling.all_dims:
        values |= {"mscale": scaling.all_dims, "mscale_all_dim": scaling.all_dims}
    if scaling.kind == "yarn":
        values |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
    if scaling.kind == "llama3":
        values |= {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    if scaling.kind == "longrope":
        values |= _longrope(config, scaling)
    return {"rope_theta": theta, "rope_scaling": values}


def _longrope(config: ModelConfig, scaling: RopeScaling) -> dict[str, Any]:
    """Transformers picks the divisors by the length of each text; ours are those of the model's
    context, so both lists are the one in use.
    """
    stretch = max(1.0, config.context / scaling.original_context)
    used = scaling.long if config.context > scaling.original_context else scaling.short
    return {
        "factor": stretch,
        "short_factor": list(used),
        "long_factor": list(used),
    }


def read(
    settings: Settings, context: int, *, theta: str = "rope_theta", all_dims: bool = False
) -> dict[str, Any]:
    """Theta and scaling of a ModelConfig with that context, by dotted names; ``theta`` names the
    key of a family that calls it otherwise. ``all_dims``: whether its class multiplies scores by
    ``mscale_all_dim``'s temperature. Raises ``LlmcurateError``.
    """
    new = settings.sub("rope_parameters")
    values = new or settings.sub("rope_scaling")
    base = (new or settings).number("rope_theta" if new else theta, 10_000.0)
    kind = values.word("rope_type", values.word("type", "default")) if values else "default"
    if not values or kind == "default":
        return {"position.theta": base}
    if kind not in ("linear", "yarn", "llama3", "longrope"):
        raise values.refusal("rope_type", kind, "linear, yarn, llama3 and longrope are known")
    original = 0
    if kind != "linear":
        # Phi-3 keeps it beside the scaling.
        beside = settings.whole("original_max_position_embeddings", context)
        original = values.whole("original_max_position_embeddings", beside)
        if original < 1:
            raise values.refusal("original_max_position_embeddings", original, "give 1 or more")
    scaling: dict[str, Any] = {"kind": kind, "original_context": original}
    if kind != "longrope":
        scaling["factor"] = values.number("factor")
    if kind == "llama3":
        scaling["low"] = values.number("low_freq_factor")
        scaling["high"] = values.number("high_freq_factor")
    if kind == "yarn":
        scaling["beta_fast"] = values.number("beta_fast", 32.0)
        scaling["beta_slow"] = values.number("beta_slow", 1.0)
        scaling |= _read_yarn(values, scaling["factor"], all_dims)
    if kind == "longrope":
        scaling |= _read_longrope(values, context, original)
    return {"position.theta": base, "position.scaling": to_dict(RopeScaling(**scaling))}


def _read_yarn(values: Settings, factor: float, all_dims: bool) -> dict[str, Any]:
    """The attention factor, where it is not the usual one, and ``all_dims``."""
    values.expect("truncate", True, True)
    mscale, every = values.number("mscale", 0.0), values.number("mscale_all_dim", 0.0)
    stated = temperature(factor)
    if mscale > 0 and every > 0:
        stated = temperature(factor, mscale) / temperature(factor, every)
    usual = 1.0 if all_dims and every else temperature(factor)
    unusual = _unusual(values.number("attention_factor", stated), usual)
    return {"attention_factor": unusual, "all_dims": every if all_dims else 0.0}


def _unusual(stated: float, usual: float) -> float | None:
    return None if math.isclose(stated, usual, rel_tol=1e-6) else stated


def _read_longrope(values: Settings, context: int, original: int) -> Mapping[str, Any]:
    short, long = values.numbers("short_factor"), values.numbers("long_factor")
    if context > original and short != long:
        raise values.refusal(
            "short_factor",
            "not long_factor",
            f"ours does not change with a text's length: import it with --context {original}",
        )
    stretch = max(1.0, context / original)
    usual = math.sqrt(1 + math.log(stretch) / math.log(original)) if original > 1 else 1.0
    factor = _unusual(values.number("attention_factor", usual), usual)
    if factor is not None and context <= original:
        raise values.refusal("attention_factor", factor, "ours is 1 up to the original context")
    return {"short": short, "long": long, "attention_factor": factor}
