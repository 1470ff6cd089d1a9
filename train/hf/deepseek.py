"""DeepSeek-V2 and V3: latent attention, with experts, or a dense feed-forward in each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from train.hf import rope
from train.hf.experts import ANY, LAYER, matrices
from train.hf.family import (
    COMMON,
    GATED,
    GATED_ONES,
    Family,
    Layout,
    activation,
    listed,
    reordered,
    rows_in_pairs,
)
from train.hf.settings import Settings
from train.model.attention_settings import Latent
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Experts


def _turned(config: ModelConfig, groups: int, size: int) -> Layout:
    """Of each group of ``size`` rows the last are turned: theirs 2 i with 2 i + 1, ours i with
    i + rotary / 2.
    """
    turned = config.rotated
    order = torch.cat((torch.arange(size - turned), rows_in_pairs(turned) + size - turned))
    return reordered(groups, order)


def _queries(config: ModelConfig) -> Layout:
    return _turned(config, config.attention.heads, config.attention.head_dim)


def _down(config: ModelConfig) -> Layout:
    own = config.attention
    assert isinstance(own, Latent)
    return _turned(config, 1, own.rank + own.rotary_dim)


_ATTENTION, _MLP = f"{LAYER}.self_attn", f"{LAYER}.mlp"
_ONES = listed(
    {
        "embedding": "model.embed_tokens",
        "{}.attention_norm": f"{LAYER}.input_layernorm",
        "{}.attention.query_norm": f"{_ATTENTION}.q_a_layernorm",
        "{}.attention.query_down": f"{_ATTENTION}.q_a_proj",
        "{}.attention.norm": f"{_ATTENTION}.kv_a_layernorm",
        "{}.attention.up": f"{_ATTENTION}.kv_b_proj",
        "{}.attention.out": f"{_ATTENTION}.o_proj",
        "{}.feed_forward_norm": f"{LAYER}.post_attention_layernorm",
        "{}.feed_forward.gate": f"{_MLP}.gate_proj",
        "{}.feed_forward.up": f"{_MLP}.up_proj",
        "{}.feed_forward.down": f"{_MLP}.down_proj",
        "{}.feed_forward.router.weight": f"{_MLP}.gate.weight",
        "{}.feed_forward.router.bias": f"{_MLP}.gate.e_score_correction_bias",
        "{}.feed_forward.shared.gate": f"{_MLP}.shared_experts.gate_proj",
        "{}.feed_forward.shared.up": f"{_MLP}.shared_experts.up_proj",
        "{}.feed_forward.shared.down": f"{_MLP}.shared_experts.down_proj",
        "{}.attention.query": (f"{_ATTENTION}.q_proj", _queries),
        "{}.attention.query_up": (f"{_ATTENTION}.q_b_proj", _queries),
        "{}.attention.down": (f"{_ATTENTION}.kv_a_proj_with_mqa", _down),
    }
)
_PARTS = _ONES + listed(
    {
        **matrices(f"{_MLP}.experts.[]", "gate_proj", "up_proj", "down_proj"),
        "stack.norm": "model.norm",
        "head": "lm_head",
    }
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
    "feed_forward.kind": ("dense", "experts"),
    "feed_forward.scale": ("1", "other"),
    "feed_forward.shared_width": ("a multiple of width",),
    "feed_forward.first_dense": ANY,
}


def _write(config: ModelConfig) -> dict[str, Any]:
    own = config.attention
    assert isinstance(own, Latent)
    return {
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
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
        **_write_feed_forward(config),
    }


def _write_feed_forward(config: ModelConfig) -> dict[str, Any]:
    own = config.feed_forward
    if not isinstance(own, Experts):
        return {"intermediate_size": own.width, "first_k_dense_replace": config.layers}
    free = own.top_groups == own.groups
    return {
        "intermediate_size": own.dense_width or own.width,
        "moe_intermediate_size": own.width,
        "first_k_dense_replace": own.first_dense,
        "n_routed_experts": own.count,
        "n_shared_experts": own.shared_width // own.width,
        "num_experts_per_tok": own.top_k,
        "n_group": 1 if free else own.groups,
        "topk_group": 1 if free else own.top_groups,
        "norm_topk_prob": own.normalise,
        "routed_scaling_factor": own.scale,
        "scoring_func": own.scores,
        "aux_loss_alpha": own.balance,
        "seq_aux": True,
    }


def _read(settings: Settings, wanted: int | None) -> dict[str, Any]:
    heads = settings.whole("num_attention_heads")
    settings.expect("num_key_value_heads", heads, heads)
    settings.expect("attention_bias", False, False)
    settings.expect("mlp_bias", False, False)
    settings.expect("rope_interleave", True, True)
    length = wanted or settings.whole("max_position_embeddings")
    return {
        "layers": settings.whole("num_hidden_layers"),
        "hidden": settings.whole("hidden_size"),
        "attention.kind": "latent",
        "attention.heads": heads,
        "attention.query_rank": settings.whole("q_lora_rank", None),
        "attention.rank": settings.whole("kv_lora_rank", 512),
        "attention.rotary_dim": settings.whole("qk_rope_head_dim", 64),
        "attention.plain_dim": settings.whole("qk_nope_head_dim", 128),
        "attention.value_dim": settings.whole("v_head_dim", 128),
        "feed_forward.activation": settings.one_of("hidden_act", GATED, "silu"),
        "context": length,
        "norm.eps": settings.number("rms_norm_eps", 1e-6),
        "head.tied": settings.flag("tie_word_embeddings", False),
        **rope.read(settings, length, all_dims=True),
        **_read_feed_forward(settings),
    }


def _read_feed_forward(settings: Settings) -> dict[str, Any]:
    first, width = settings.whole("first_k_dense_replace"), settings.whole("intermediate_size")
    if first >= settings.whole("num_hidden_layers"):
        return {"feed_forward.width": width}
    settings.expect("moe_layer_freq", 1, 1)
    expert_width = settings.whole("moe_intermediate_size")
    return {
        "feed_forward.kind": "experts",
        "feed_forward.count": settings.whole("n_routed_experts"),
        "feed_forward.top_k": settings.whole("num_experts_per_tok"),
        "feed_forward.width": expert_width,
        "feed_forward.shared_width": expert_width * settings.whole("n_shared_experts"),
        "feed_forward.first_dense": first,
        "feed_forward.dense_width": width if first else None,
        "feed_forward.groups": settings.whole("n_group", 1),
        "feed_forward.top_groups": settings.whole("topk_group", 1),
        "feed_forward.scale": settings.number("routed_scaling_factor"),
        "feed_forward.balance": settings.number("aux_loss_alpha", 0.001),
    }


def _read_v3(settings: Settings, wanted: int | None) -> dict[str, Any]:
    values = _read(settings, wanted)
    if "feed_forward.kind" not in values:
        return values
    settings.expect("scoring_func", "sigmoid", "sigmoid")
    settings.expect("topk_method", "noaux_tc", "noaux_tc")
    return values | {
        "feed_forward.scores": "sigmoid",
        "feed_forward.normalise": settings.flag("norm_topk_prob", True),
        "feed_forward.bias_rate": 0.001,  # arXiv 2412.19437, section 4.2; files do not say
    }


def _write_v2(config: ModelConfig) -> dict[str, Any]:
    own = config.feed_forward
    limited = isinstance(own, Experts) and own.top_groups < own.groups
    return _write(config) | {"topk_method": "group_limited_greedy" if limited else "greedy"}


def _read_v2(settings: Settings, wanted: int | None) -> dict[str, Any]:
    values = _read(settings, wanted)
    if "feed_forward.kind" not in values:
        return values
    settings.expect("scoring_func", "softmax", "softmax")
    settings.expect("norm_topk_prob", False, False)
    method = settings.word("topk_method", "greedy")
    if method == "greedy":  # whatever the groups
        values |= {"feed_forward.groups": 1, "feed_forward.top_groups": 1}
    elif method != "group_limited_greedy":
        raise settings.refusal("topk_method", method, "greedy and group_limited_greedy are known")
    return values | {"feed_forward.normalise": False, "feed_forward.group_best": 1}


DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    architecture="DeepseekV3ForCausalLM",
    allows=_ALLOWS
    | {
        "feed_forward.scores": ("sigmoid",),
        "feed_forward.bias_rate": ("some",),
        "feed_forward.normalise": (True, False),
        "feed_forward.groups": ("none", "by the best 2"),
    },
    write=_write,
    read=_read_v3,
    parts=_PARTS,
    prefix="model.",
    beyond=f"{LAYER}.",
    defaults={
        "q_lora_rank": 1536,
        "max_position_embeddings": 4096,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "routed_scaling_factor": 2.5,
    },
)
DEEPSEEK_V2 = replace(
    DEEPSEEK_V3,
    name="deepseek_v2",
    architecture="DeepseekV2ForCausalLM",
    allows=_ALLOWS
    | {"feed_forward.normalise": (False,), "feed_forward.groups": ("none", "by the best 1")},
    write=_write_v2,
    read=_read_v2,
    beyond="",
    defaults={
        "q_lora_rank": 1536,
        "max_position_embeddings": 2048,
        "intermediate_size": 11_008,
        "moe_intermediate_size": 1407,
        "first_k_dense_replace": 0,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.0,
    },
)
