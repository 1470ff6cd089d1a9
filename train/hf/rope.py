"""Rotary positions in config.json: ``rope_theta`` and ``rope_scaling``, or ``rope_parameters``."""

from __future__ import annotations

import math

from llmcurate.base.settings import to_dict
from train.hf.keys import Pairs, Reading, Row, Settings
from train.model.config import ModelConfig
from train.model.position_settings import Rope, RopeScaling
from train.model.positions import rope_frequencies, temperature


def rope_keys(config: ModelConfig) -> Pairs:
    """Yield ``rope_theta`` and ``rope_scaling``, which every version of transformers reads."""
    assert isinstance(config.position, Rope)
    theta, scaling = config.position.theta, config.position.scaling
    if scaling is not None and scaling.kind == "ntk":  # only changes theta
        theta *= scaling.factor ** (config.rotated / (config.rotated - 2))
        scaling = None
    yield "rope_theta", theta
    yield "rope_scaling", None if scaling is None else dict(_scaling_keys(config, scaling))


def _scaling_keys(config: ModelConfig, scaling: RopeScaling) -> Pairs:
    """Yield the keys of ``rope_scaling``. For longrope, transformers has two lists of divisors of
    the frequencies, one for short texts and one for long texts. Our model uses one list for all
    texts, so that list is written as both."""
    kind, original = scaling.kind, scaling.original_context
    factor = max(1.0, config.context / original) if kind == "longrope" else scaling.factor
    yield from (("rope_type", kind), ("factor", factor))
    if kind != "linear":
        yield "original_max_position_embeddings", original
    if kind in ("yarn", "longrope"):
        yield "attention_factor", rope_frequencies(config)[1]
    if scaling.all_dims:
        yield from (("mscale", scaling.all_dims), ("mscale_all_dim", scaling.all_dims))
    if kind == "yarn":
        yield from (("beta_fast", scaling.beta_fast), ("beta_slow", scaling.beta_slow))
    if kind == "llama3":
        yield from (("low_freq_factor", scaling.low), ("high_freq_factor", scaling.high))
    if kind == "longrope":
        used = list(scaling.long if config.context > original else scaling.short)
        yield from (("short_factor", used), ("long_factor", used))


def rope(theta: str = "rope_theta", *, all_dims: bool = False) -> Row:
    """Return a row of the table of config.json keys: the base and the scaling of rotary
    frequencies. The row needs the context length, so the row for the context must come earlier in
    the table. ``theta``: the family's key for the base. ``all_dims``: True if the family's class in
    transformers scales attention by YaRN's ``mscale_all_dim``."""

    def read(reading: Reading) -> Pairs:
        new = reading.file.sub("rope_parameters")
        new = (new and new.sub("full_attention")) or new  # Gemma 3 has one for each kind of layer
        values = new or reading.file.sub("rope_scaling")
        base = (new or reading.file).number("rope_theta" if new else theta, 10_000.0)
        yield "position.theta", base
        kind = values.word("rope_type", values.word("type", "default")) if values else "default"
        if values and kind != "default":
            yield "position.scaling", to_dict(_scaling(reading, values, kind, all_dims))

    return Row("rope", rope_keys, read)


def _scaling(reading: Reading, values: Settings, kind: str, all_dims: bool) -> RopeScaling:
    context, original = reading.ours["context"], 0
    if kind != "linear":
        # Phi-3 has it outside of rope_scaling.
        top_level = reading.file.whole("original_max_position_embeddings", context)
        original = values.whole("original_max_position_embeddings", top_level)
        if original < 1:
            raise values.refusal("original_max_position_embeddings", original, "give 1 or more")
    match kind:
        case "linear":
            return RopeScaling(kind="linear", factor=values.number("factor"))
        case "llama3":
            return RopeScaling(
                kind="llama3",
                original_context=original,
                factor=values.number("factor"),
                low=values.number("low_freq_factor"),
                high=values.number("high_freq_factor"),
            )
        case "yarn":
            return _yarn(values, original, all_dims)
        case "longrope":
            return _longrope(values, context, original)
    raise values.refusal("rope_type", kind, "expected linear, yarn, llama3 or longrope")


def _yarn(values: Settings, original: int, all_dims: bool) -> RopeScaling:
    values.expect("truncate", True, True)
    factor = values.number("factor")
    mscale, every = values.number("mscale", 0.0), values.number("mscale_all_dim", 0.0)
    stated = temperature(factor)
    if mscale > 0 and every > 0:
        stated = temperature(factor, mscale) / temperature(factor, every)
    usual = 1.0 if all_dims and every else temperature(factor)
    return RopeScaling(
        kind="yarn",
        original_context=original,
        factor=factor,
        beta_fast=values.number("beta_fast", 32.0),
        beta_slow=values.number("beta_slow", 1.0),
        attention_factor=_unusual(values.number("attention_factor", stated), usual),
        all_dims=every if all_dims else 0.0,
    )


def _unusual(stated: float, usual: float) -> float | None:
    return None if math.isclose(stated, usual, rel_tol=1e-6) else stated


def _longrope(values: Settings, context: int, original: int) -> RopeScaling:
    short, long = values.numbers("short_factor"), values.numbers("long_factor")
    if context > original and short != long:
        raise values.refusal(
            "short_factor",
            "not long_factor",
            "factors that change with a text's length are not supported: import with"
            f" --context {original}",
        )
    factor_of_context = max(1.0, context / original)
    usual = math.sqrt(1 + math.log(factor_of_context) / math.log(original)) if original > 1 else 1.0
    factor = _unusual(values.number("attention_factor", usual), usual)
    if factor is not None and context <= original:
        raise values.refusal("attention_factor", factor, "it must be 1 up to the original context")
    return RopeScaling(
        kind="longrope", original_context=original, short=short, long=long, attention_factor=factor
    )
