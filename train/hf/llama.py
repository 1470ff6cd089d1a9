"""Families whose tensors are named as LLaMA's: Llama, Qwen2, Qwen3, Mistral, Ministral, OLMo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from train.hf import rope
from train.hf.family import (
    COMMON,
    GATED,
    GATED_ONES,
    Family,
    activation,
    listed,
    of_decoder,
    repeated,
)
from train.hf.settings import Settings
from train.model.config import ModelConfig

_PARTS = listed(
    {
        "embedding": "model.embed_tokens",
        "{}.attention_norm": "model.layers.{}.input_layernorm",
        "{}.attention.query": "model.layers.{}.self_attn.q_proj",
        "{}.attention.key": "model.layers.{}.self_attn.k_proj",
        "{}.attention.value": "model.layers.{}.self_attn.v_proj",
        "{}.attention.out": "model.layers.{}.self_attn.o_proj",
        "{}.attention.query_norm": "model.layers.{}.self_attn.q_norm",
        "{}.attention.key_norm": "model.layers.{}.self_attn.k_norm",
        "{}.feed_forward_norm": "model.layers.{}.post_attention_layernorm",
        "{}.feed_forward.gate": "model.layers.{}.mlp.gate_proj",
        "{}.feed_forward.up": "model.layers.{}.mlp.up_proj",
        "{}.feed_forward.down": "model.layers.{}.mlp.down_proj",
        "stack.norm": "model.norm",
        "head": "lm_head",
    }
)
_KINDS = {"sliding_attention": "W", "full_attention": "F"}
_ALLOWS = COMMON | {
    "norm.kind": ("rms",),
    "bias": ("none",),
    "feed_forward.activation": GATED_ONES,
    "attention.kv_heads": ("heads", "fewer than heads"),
    "attention.head_dim": ("hidden / heads", "other"),
    "position.kind": ("rope",),
    "position.scaling": (False, True),
    "position.theta": ("10000", "other"),
}


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.attention.heads,
        "num_key_value_heads": config.attention.kv_heads,
        "head_dim": config.attention.head_dim,
        "hidden_act": activation(config),
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm.eps,
        "attention_dropout": 0.0,
        **rope.written(config),
    }


def _read(context: int, eps: float = 1e-6) -> Callable[[Settings, int | None], dict[str, Any]]:
    """``context`` and ``eps``: transformers' defaults, for files that leave them out."""

    def read(settings: Settings, context_asked: int | None) -> dict[str, Any]:
        hidden, heads = settings.whole("hidden_size"), settings.whole("num_attention_heads")
        length = context_asked or settings.whole("max_position_embeddings", context)
        settings.expect("partial_rotary_factor", 1.0, 1.0)
        return {
            "layers": settings.whole("num_hidden_layers"),
            "hidden": hidden,
            "attention.heads": heads,
            "attention.kv_heads": settings.whole("num_key_value_heads", heads),
            "attention.head_dim": settings.whole("head_dim", hidden // max(1, heads)),
            "feed_forward.width": settings.whole("intermediate_size"),
            "feed_forward.activation": settings.one_of("hidden_act", GATED, "silu"),
            "context": length,
            "norm.eps": settings.number("rms_norm_eps", eps),
            "head.tied": settings.flag("tie_word_embeddings", False),
            **rope.read(settings, length),
        }

    return read


def _write_llama(config: ModelConfig) -> dict[str, Any]:
    return _write(config) | {
        "attention_bias": config.attention.bias == "all",
        "mlp_bias": config.feed_forward.bias,
    }


def _read_llama(settings: Settings, context: int | None) -> dict[str, Any]:
    return _read(2048)(settings, context) | {
        "attention.bias": "all" if settings.flag("attention_bias", False) else "none",
        "feed_forward.bias": settings.flag("mlp_bias", False),
    }


def _write_windows(config: ModelConfig) -> dict[str, Any]:
    """Qwen's and Ministral's kinds of layers."""
    windows = config.windows
    kinds = ["full_attention" if size is None else "sliding_attention" for size in windows]
    on = any(size is not None for size in windows)
    return {
        "use_sliding_window": on,
        "sliding_window": next(filter(None, windows), None),
        "max_window_layers": 0 if on else config.layers,
        "layer_types": kinds,
    }


def _read_windows(settings: Settings, layers: int, *, on: bool, first: int) -> dict[str, Any]:
    """``on``: whether there are windows where a file does not list the kinds of layers; ``first``:
    the layer they begin with.
    """
    window = settings.whole("sliding_window", None)
    kinds = settings.words("layer_types")
    if kinds is None:
        marks = "".join("W" if on and layer >= first else "F" for layer in range(min(layers, 9999)))
    else:
        marks = "".join(_KINDS.get(kind, "?") for kind in kinds)
        if "?" in marks or len(kinds) != layers:
            raise settings.refusal(
                "layer_types", kinds[:3], "one of sliding_attention and full_attention a layer"
            )
    if window is None or "W" not in marks:
        return {"attention.window": None}
    return {"attention.window": window, "attention.window_pattern": repeated(marks)}


def _read_qwen(bias: str, qk_norm: bool) -> Callable[[Settings, int | None], dict[str, Any]]:
    def read(settings: Settings, context: int | None) -> dict[str, Any]:
        if qk_norm:
            settings.expect("attention_bias", False, False)
        values = _read(32_768)(settings, context)
        used = settings.flag("use_sliding_window", False)
        first = settings.whole("max_window_layers", 28)
        windows = _read_windows(settings, values["layers"], on=used, first=first)
        if not used:  # the length of the window is then not read
            windows = {"attention.window": None}
        return values | windows | {"attention.bias": bias, "attention.qk_norm": qk_norm}

    return read


def _read_mistral(settings: Settings, context: int | None) -> dict[str, Any]:
    window = settings.whole("sliding_window", None)
    return _read(131_072)(settings, context) | {"attention.window": window}


def _read_ministral(settings: Settings, context: int | None) -> dict[str, Any]:
    values = _read(131_072)(settings, context)
    return values | _read_windows(settings, values["layers"], on=True, first=0)


def _write_olmo(config: ModelConfig) -> dict[str, Any]:
    values = _write(config) | {"attention_bias": False, "clip_qkv": None}
    del values["rms_norm_eps"], values["head_dim"]
    return values


def _read_olmo(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("clip_qkv", None, None)
    settings.expect("attention_bias", False, False)
    # Its norm has no weights, and its eps is in the code.
    return _read(2048)(settings, context) | {"norm.kind": "layer_plain", "norm.eps": 1e-5}


def _without_switch(config: ModelConfig) -> dict[str, Any]:
    values = _write_windows(config)
    del values["use_sliding_window"], values["max_window_layers"]
    return values


_WINDOWS = ("none", "some layers", "every layer")
_ANY_HEAD = (*_ALLOWS["attention.head_dim"], "other, heads not dividing hidden")

LLAMA = Family(
    name="llama",
    architecture="LlamaForCausalLM",
    tasks=of_decoder("Llama"),
    allows=_ALLOWS | {"bias": ("none", "all", "feed-forward", "attention")},
    write=_write_llama,
    read=_read_llama,
    parts=_PARTS,
    prefix="model.",
)
MISTRAL = replace(
    LLAMA,
    name="mistral",
    architecture="MistralForCausalLM",
    tasks=of_decoder("Mistral"),
    allows=_ALLOWS | {"attention.window": ("every layer", "none"), "attention.head_dim": _ANY_HEAD},
    write=lambda config: _write(config) | {"sliding_window": config.windows[0]},
    read=_read_mistral,
    defaults={"sliding_window": 4096, "num_key_value_heads": 8},
)
MINISTRAL = replace(
    MISTRAL,
    name="ministral",
    architecture="MinistralForCausalLM",
    tasks={},
    allows=_ALLOWS | {"attention.window": _WINDOWS, "attention.head_dim": _ANY_HEAD},
    write=lambda config: _write(config) | _without_switch(config),
    read=_read_ministral,
)
QWEN2 = replace(
    LLAMA,
    name="qwen2",
    architecture="Qwen2ForCausalLM",
    tasks=of_decoder("Qwen2"),
    allows=_ALLOWS
    | {"bias": ("qkv",), "attention.window": _WINDOWS, "attention.head_dim": _ANY_HEAD},
    write=lambda config: _write(config) | _write_windows(config),
    read=_read_qwen("qkv", False),
    defaults={"sliding_window": 4096, "num_key_value_heads": 32},
)
QWEN3 = replace(
    LLAMA,
    name="qwen3",
    architecture="Qwen3ForCausalLM",
    tasks=of_decoder("Qwen3"),
    allows=_ALLOWS
    | {"attention.qk_norm": (True,), "attention.window": _WINDOWS, "attention.head_dim": _ANY_HEAD},
    write=lambda config: _write(config) | _write_windows(config) | {"attention_bias": False},
    read=_read_qwen("none", True),
    defaults={"sliding_window": 4096, "num_key_value_heads": 32, "head_dim": 128},
)
OLMO = replace(
    LLAMA,
    name="olmo",
    architecture="OlmoForCausalLM",
    tasks={},
    allows=_ALLOWS
    | {
        "norm.kind": ("layer_plain",),
        "norm.eps": ("1e-5",),
        "attention.head_dim": ("hidden / heads",),
    },
    write=_write_olmo,
    read=_read_olmo,
)
