"""DeepSeek-V2 and V3 in llmcurate's terms: latent attention, experts or dense feed-forwards."""

from __future__ import annotations

from dataclasses import replace

import torch

from train.hf import keys
from train.hf.family import SCORE, Family, Layout, parts_from, reordered, rows_in_pairs
from train.hf.llama import LAYER
from train.hf.rope import rope
from train.model.attention_settings import Latent
from train.model.config import ModelConfig
from train.model.feed_forward_settings import Experts


def _rotary_rows(config: ModelConfig, groups: int, size: int) -> Layout:
    """Return the layout (order of rows) of a matrix whose last R = ``config.rotated`` rows in each
    group of ``size`` get rotary positions. Of these, Hugging Face rotates rows 2 i and 2 i + 1 as a
    pair, llmcurate rows i and i + R / 2."""
    rotary = config.rotated
    order = torch.cat((torch.arange(size - rotary), rows_in_pairs(rotary) + size - rotary))
    return reordered(groups, order)


def _queries(config: ModelConfig) -> Layout:
    return _rotary_rows(config, config.attention.heads, config.attention.head_dim)


def _down(config: ModelConfig) -> Layout:
    own = config.attention
    assert isinstance(own, Latent)
    return _rotary_rows(config, 1, own.rank + own.rotary_dim)


_ATTENTION, _MLP = f"{LAYER}.self_attn", f"{LAYER}.mlp"
_ONES = parts_from(
    {
        "embedding": "model.embed_tokens",
        "{}.attention_norm": f"{LAYER}.input_layernorm",
        "{}.attention: query_norm query_down": f"{_ATTENTION}: q_a_layernorm q_a_proj",
        "{}.attention: norm up out": f"{_ATTENTION}: kv_a_layernorm kv_b_proj o_proj",
        "{}.feed_forward_norm": f"{LAYER}.post_attention_layernorm",
        "{}.feed_forward: gate up down": f"{_MLP}: gate_proj up_proj down_proj",
        "{}.feed_forward.router.weight": f"{_MLP}.gate.weight",
        "{}.feed_forward.router.bias": f"{_MLP}.gate.e_score_correction_bias",
        "{}.feed_forward.shared: gate up down": (
            f"{_MLP}.shared_experts: gate_proj up_proj down_proj"
        ),
        "{}.attention: query query_up": (f"{_ATTENTION}: q_proj q_b_proj", _queries),
        "{}.attention.down": (f"{_ATTENTION}.kv_a_proj_with_mqa", _down),
    }
)
_PARTS = _ONES + parts_from(
    {
        "{}.feed_forward: gate up down": f"{_MLP}.experts.[]: gate_proj up_proj down_proj",
        "stack.norm": "model.norm",
        "head": "lm_head",
    }
)


def _write_feed_forward(config: ModelConfig) -> keys.Pairs:
    own = config.feed_forward
    if not isinstance(own, Experts):
        yield from (("intermediate_size", own.width), ("first_k_dense_replace", config.layers))
        return
    free = own.top_groups == own.groups
    yield "intermediate_size", own.dense_width or own.width
    yield "moe_intermediate_size", own.width
    yield "first_k_dense_replace", own.first_dense
    yield "n_routed_experts", own.count
    yield "n_shared_experts", own.shared_width // own.width
    yield "num_experts_per_tok", own.top_k
    yield "n_group", 1 if free else own.groups
    yield "topk_group", 1 if free else own.top_groups
    yield "norm_topk_prob", own.normalise
    yield "routed_scaling_factor", own.scale
    yield "scoring_func", own.scores
    yield "aux_loss_alpha", own.balance
    yield "seq_aux", True


def _read_feed_forward(reading: keys.Reading) -> keys.Pairs:
    file = reading.file
    first, width = file.whole("first_k_dense_replace"), file.whole("intermediate_size")
    if first >= reading.ours["layers"]:
        yield "feed_forward.width", width
        return
    file.expect("moe_layer_freq", 1, 1)
    own = file.whole("moe_intermediate_size")
    yield "feed_forward.kind", "experts"
    yield "feed_forward.count", file.whole("n_routed_experts")
    yield "feed_forward.top_k", file.whole("num_experts_per_tok")
    yield "feed_forward.width", own
    # The class always has shared experts.
    yield "feed_forward.shared_width", own * max(1, file.whole("n_shared_experts"))
    yield "feed_forward.first_dense", first
    yield "feed_forward.dense_width", width if first else None
    yield "feed_forward.groups", file.whole("n_group", 1)
    yield "feed_forward.top_groups", file.whole("topk_group", 1)
    yield "feed_forward.scale", file.number("routed_scaling_factor")
    yield "feed_forward.balance", file.number("aux_loss_alpha", 0.001)


def _read_v3(reading: keys.Reading) -> keys.Pairs:
    file = reading.file
    if "feed_forward.kind" in reading.ours:
        file.expect("scoring_func", "sigmoid", "sigmoid")
        file.expect("topk_method", "noaux_tc", "noaux_tc")
        yield "feed_forward.scores", "sigmoid"
        yield "feed_forward.normalise", file.flag("norm_topk_prob", True)
        # arXiv 2412.19437, section 4.2; files do not store it.
        yield "feed_forward.bias_rate", 0.001


def _method(config: ModelConfig) -> str:
    own = config.feed_forward
    limited = isinstance(own, Experts) and own.top_groups < own.groups
    return "group_limited_greedy" if limited else "greedy"


def _read_v2(reading: keys.Reading) -> keys.Pairs:
    file = reading.file
    if "feed_forward.kind" not in reading.ours:
        return
    file.expect("scoring_func", "softmax", "softmax")
    file.expect("norm_topk_prob", False, False)
    method = file.word("topk_method", "greedy")
    if method == "greedy":  # groups are ignored
        yield from (("feed_forward.groups", 1), ("feed_forward.top_groups", 1))
    elif method != "group_limited_greedy":
        raise file.refusal("topk_method", method, "choose greedy or group_limited_greedy")
    yield from (("feed_forward.normalise", False), ("feed_forward.group_best", 1))


_KEYS = (
    keys.whole("hidden_size", "hidden"),
    keys.whole("num_hidden_layers", "layers"),
    keys.constant_key("num_nextn_predict_layers", 0),
    keys.whole("num_attention_heads", "attention.heads"),
    keys.same("num_key_value_heads", "attention.heads"),
    keys.implied(("attention.kind", "latent")),
    keys.whole("q_lora_rank", "attention.query_rank", None),
    keys.whole("kv_lora_rank", "attention.rank", 512),
    keys.whole("qk_rope_head_dim", "attention.rotary_dim", 64),
    keys.whole("qk_nope_head_dim", "attention.plain_dim", 128),
    keys.whole("v_head_dim", "attention.value_dim", 128),
    keys.activated("hidden_act", keys.GATED, "silu"),
    keys.length("max_position_embeddings"),
    keys.number("rms_norm_eps", "norm.eps", 1e-6),
    keys.expected(attention_bias=False, rope_interleave=True, write=True),
    rope(all_dims=True),
    keys.Row("feed_forward", _write_feed_forward, _read_feed_forward),
    keys.expected(mlp_bias=False),
    keys.tied(False),
)
DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    architecture="DeepseekV3ForCausalLM",
    tasks=SCORE,
    keys=(*_KEYS, keys.Row("scores", read=_read_v3)),
    parts=_PARTS,
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
    keys=(*_KEYS, keys.constant_key("topk_method", _method, _read_v2)),
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
