"""DeepSeek-V2 and V3: latent attention, with a dense feed-forward in each layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from train.hf import rope
from train.hf.family import (
    COMMON,
    GATED,
    GATED_ONES,
    Family,
    Layout,
    Part,
    activation,
    rows_in_pairs,
)
from train.hf.settings import Settings
from train.model.attention_settings import Latent
from train.model.config import ModelConfig


def _turned(config: ModelConfig, groups: int, size: int) -> Layout:
    """Of each group of ``size`` rows the last are turned: theirs 2 i with 2 i + 1, ours i with
    i + rotary / 2.
    """
    turned = config.rotated
    order = torch.cat((torch.arange(size - turned), rows_in_pairs(turned) + size - turned))
    back = order.argsort()

    def move(tensor: Tensor, order: Tensor) -> Tensor:
        grouped = tensor.unflatten(0, (groups, size))
        return grouped.index_select(1, order.to(tensor.device)).flatten(0, 1)

    def pack(ours: Sequence[Tensor]) -> Tensor:
        return move(ours[0], order)

    return Layout(pack=pack, unpack=lambda theirs: [move(theirs, back)])


def _queries(config: ModelConfig) -> Layout:
    return _turned(config, config.attention.heads, config.attention.head_dim)


def _down(config: ModelConfig) -> Layout:
    own = config.attention
    assert isinstance(own, Latent)
    return _turned(config, 1, own.rank + own.rotary_dim)


_OURS, _THEIRS = "stack.blocks.{}.", "model.layers.{}."
_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.query_norm": "self_attn.q_a_layernorm",
    "attention.query_down": "self_attn.q_a_proj",
    "attention.norm": "self_attn.kv_a_layernorm",
    "attention.up": "self_attn.kv_b_proj",
    "attention.out": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
_TURNED = {
    "attention.query": ("self_attn.q_proj", _queries),
    "attention.query_up": ("self_attn.q_b_proj", _queries),
    "attention.down": ("self_attn.kv_a_proj_with_mqa", _down),
}
_PARTS = (
    Part(ours=("embedding",), theirs="model.embed_tokens"),
    *(Part(ours=(_OURS + ours,), theirs=_THEIRS + theirs) for ours, theirs in _BLOCK.items()),
    *(
        Part(ours=(_OURS + ours,), theirs=_THEIRS + theirs, layout=layout)
        for ours, (theirs, layout) in _TURNED.items()
    ),
    Part(ours=("stack.norm",), theirs="model.norm"),
    Part(ours=("head",), theirs="lm_head"),
)
_ALLOWS = COMMON | {
    "attention.kind": ("latent",),
    "attention.head_dim": ("hidden / heads", "other", "other, heads not dividing hidden"),
    "norm.kind": ("rms",),
    "bias": ("none",),
    "feed_forward.activation": GATED_ONES,
    "position.kind": ("rope",),
    "position.dim": ("a part of head_dim",),
    "position.scaling": (False, True),
    "position.theta": ("10000", "other"),
}


def _write(config: ModelConfig) -> dict[str, Any]:
    own = config.attention
    assert isinstance(own, Latent)
    return {
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward.width,
        "num_hidden_layers": config.layers,
        "first_k_dense_replace": config.layers,
        "num_nextn_predict_layers": 0,
        "num_attention_heads": own.heads,
        "num_key_value_heads": own.heads,
        "q_lora_rank": own.query_rank,
        "kv_lora_rank": own.rank,
        "qk_rope_head_dim": own.rotary_dim,
        "qk_nope_head_dim": own.plain_dim,
        "v_head_dim": own.value_dim,
        "hidden_act": activation(config),
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm.eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_interleave": True,
        **rope.written(config),
    }


def _read(context: int, dense: int) -> Callable[[Settings, int | None], dict[str, Any]]:
    """``context`` and ``dense``, layers before those of experts: transformers' defaults, for files
    that leave them out.
    """

    def read(settings: Settings, wanted: int | None) -> dict[str, Any]:
        layers = settings.whole("num_hidden_layers")
        first = settings.whole("first_k_dense_replace", dense)
        if first < layers:
            raise settings.refusal(
                "first_k_dense_replace", first, f"layers of experts among the {layers} are not read"
            )
        heads = settings.whole("num_attention_heads")
        settings.expect("num_key_value_heads", heads, heads)
        settings.expect("attention_bias", False, False)
        settings.expect("mlp_bias", False, False)
        settings.expect("rope_interleave", True, True)
        length = wanted or settings.whole("max_position_embeddings", context)
        return {
            "layers": layers,
            "hidden": settings.whole("hidden_size"),
            "attention.kind": "latent",
            "attention.heads": heads,
            "attention.query_rank": settings.whole("q_lora_rank", None),
            "attention.rank": settings.whole("kv_lora_rank", 512),
            "attention.rotary_dim": settings.whole("qk_rope_head_dim", 64),
            "attention.plain_dim": settings.whole("qk_nope_head_dim", 128),
            "attention.value_dim": settings.whole("v_head_dim", 128),
            "feed_forward.width": settings.whole("intermediate_size"),
            "feed_forward.activation": settings.one_of("hidden_act", GATED, "silu"),
            "context": length,
            "norm.eps": settings.number("rms_norm_eps", 1e-6),
            "head.tied": settings.flag("tie_word_embeddings", False),
            **rope.read(settings, length),
        }

    return read


DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    architecture="DeepseekV3ForCausalLM",
    allows=_ALLOWS,
    write=_write,
    read=_read(4096, 3),
    parts=_PARTS,
    prefix="model.",
    defaults={"q_lora_rank": 1536},
)
DEEPSEEK_V2 = Family(
    name="deepseek_v2",
    architecture="DeepseekV2ForCausalLM",
    allows=_ALLOWS,
    write=_write,
    read=_read(2048, 0),
    parts=_PARTS,
    prefix="model.",
    defaults={"q_lora_rank": 1536},
)
