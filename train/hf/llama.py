"""Families with LLaMA's tensor names: Llama, Qwen2, Qwen3, Mistral, Ministral, OLMo, Mixtral and
Qwen2-MoE. Files hold one tensor for each matrix of each expert, as in transformers 4."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from train.hf import keys
from train.hf.family import OF_DECODER, SCORE, Family, parts_from
from train.hf.rope import rope
from train.model.config import ModelConfig

LAYER = "model.layers.{}"
_PARTS = parts_from(
    {
        "embedding": "model.embed_tokens",
        "{}.attention_norm": "model.layers.{}.input_layernorm",
        "{}.attention: query key value out": f"{LAYER}.self_attn: q_proj k_proj v_proj o_proj",
        "{}.attention: query_norm key_norm": f"{LAYER}.self_attn: q_norm k_norm",
        "{}.feed_forward_norm": "model.layers.{}.post_attention_layernorm",
        "{}.feed_forward: gate up down": f"{LAYER}.mlp: gate_proj up_proj down_proj",
        "stack.norm": "model.norm",
        "head": "lm_head",
    }
)
_KINDS = {"sliding_attention": "W", "full_attention": "F"}


_KEYS = (
    keys.whole("hidden_size", "hidden"),
    keys.whole("intermediate_size", "feed_forward.width"),
    keys.whole("num_hidden_layers", "layers"),
    keys.whole("num_attention_heads", "attention.heads"),
    keys.whole(
        "num_key_value_heads", "attention.kv_heads", lambda read: read.ours["attention.heads"]
    ),
    keys.whole(
        "head_dim",
        "attention.head_dim",
        lambda read: read.ours["hidden"] // max(1, read.ours["attention.heads"]),
    ),
    keys.activated("hidden_act", keys.GATED, "silu"),
    keys.length("max_position_embeddings", 2048),
    keys.number("rms_norm_eps", "norm.eps", 1e-6),
    rope(),
    keys.expected(partial_rotary_factor=1.0),
    keys.tied(False),
)
_LONG = keys.length("max_position_embeddings", 131_072)


def layer_types(config: ModelConfig) -> list[str]:
    """Return transformers' name of each layer's attention."""
    kinds = {mark: kind for kind, mark in _KINDS.items()}
    return [kinds["F" if size is None else "W"] for size in config.windows]


def read_marks(reading: keys.Reading) -> str:
    """Return W (window) or F (full) for each layer in the key layer_types; "" without the key."""
    kinds = reading.file.words("layer_types")
    marks = "".join(_KINDS.get(kind, "?") for kind in kinds or [])
    if kinds is not None and ("?" in marks or len(kinds) != reading.ours["layers"]):
        raise reading.file.refusal(
            "layer_types", kinds[:3], "expected sliding_attention or full_attention for each layer"
        )
    return marks


def write_windows(config: ModelConfig) -> keys.Pairs:
    yield "sliding_window", next(filter(None, config.windows), None)
    yield "layer_types", layer_types(config)


def _qwen_layers(config: ModelConfig) -> keys.Pairs:
    windows, (window, kinds) = any(config.windows), write_windows(config)
    yield from (("use_sliding_window", windows), window)
    yield from (("max_window_layers", 0 if windows else config.layers), kinds)


def read_windows(
    reading: keys.Reading, *, on: bool = True, first: int = 0, every: int = 0
) -> keys.Pairs:
    """Yield the settings of the attention window: its size and the layers that have it. The layers
    are those in the file's list of layer types. If the file has no list and ``on`` is False, no
    layer has the window. If the file has no list and ``on`` is True, the layers from index
    ``first`` on have it, except every ``every``-th layer of the model (0: no exceptions)."""
    layers, window = reading.ours["layers"], reading.file.whole("sliding_window", None)
    marks = read_marks(reading) or "".join(
        "W" if on and layer >= first and not (every and (layer + 1) % every == 0) else "F"
        for layer in range(min(layers, 9999))
    )
    if window is None or "W" not in marks:
        yield "attention.window", None
    else:
        yield from (
            ("attention.window", window),
            ("attention.window_pattern", keys.repeated(marks)),
        )


def _read_qwen(reading: keys.Reading) -> keys.Pairs:
    used = reading.file.flag("use_sliding_window", False)
    first = reading.file.whole("max_window_layers", 28)
    windows = [*read_windows(reading, on=used, first=first)]
    # The window length is ignored if windows are off.
    return windows if used else [("attention.window", None)]


_QWEN = (
    *_KEYS,
    keys.length("max_position_embeddings", 32_768),
    keys.Row("windows", _qwen_layers, _read_qwen),
)


def _read_head_dim(reading: keys.Reading) -> keys.Pairs:
    hidden, heads = reading.ours["hidden"], max(1, reading.ours["attention.heads"])
    size = reading.file.whole("head_dim", hidden // heads)
    yield "attention.head_dim", size if hidden % heads == 0 else hidden // heads


_DIVIDED = keys.constant_key("head_dim", attrgetter("attention.head_dim"), _read_head_dim)
LLAMA = Family(
    name="llama",
    architecture="LlamaForCausalLM",
    tasks=OF_DECODER,
    keys=(
        *_KEYS,
        _DIVIDED,
        keys.either("attention_bias", "attention.bias", "all", "none", False),
        keys.flag("mlp_bias", "feed_forward.bias", False),
    ),
    parts=_PARTS,
)
MISTRAL = replace(
    LLAMA,
    name="mistral",
    architecture="MistralForCausalLM",
    keys=(
        *_KEYS,
        _LONG,
        keys.constant_key(
            "sliding_window",
            lambda config: config.windows[0],
            lambda reading: [("attention.window", reading.file.whole("sliding_window", None))],
        ),
    ),
    defaults={"sliding_window": 4096, "num_key_value_heads": 8},
)
MINISTRAL = replace(
    MISTRAL,
    name="ministral",
    architecture="MinistralForCausalLM",
    keys=(*_KEYS, _LONG, keys.Row("windows", write_windows, read_windows)),
)
QWEN2 = replace(
    LLAMA,
    name="qwen2",
    architecture="Qwen2ForCausalLM",
    keys=(*_QWEN, keys.implied(("attention.bias", "qkv"))),
    defaults={"sliding_window": 4096, "num_key_value_heads": 32},
)
QWEN3 = replace(
    LLAMA,
    name="qwen3",
    architecture="Qwen3ForCausalLM",
    keys=(
        *_QWEN,
        keys.expected(attention_bias=False, write=True),
        keys.implied(("attention.qk_norm", True)),
    ),
    defaults={"sliding_window": 4096, "num_key_value_heads": 32, "head_dim": 128},
)
OLMO = replace(
    LLAMA,
    name="olmo",
    architecture="OlmoForCausalLM",
    tasks=SCORE,
    keys=(
        *_KEYS,
        keys.expected(attention_bias=False, write=True),
        keys.cap("clip_qkv", "attention.clip"),
        # OLMo's norm has no weights, and its eps is fixed in the code.
        keys.implied(("norm.kind", "layer_plain"), ("norm.eps", 1e-5)),
    ),
)

MIXTRAL = replace(
    MISTRAL,
    name="mixtral",
    architecture="MixtralForCausalLM",
    keys=(
        *MISTRAL.keys,
        keys.whole("num_local_experts", "feed_forward.count", 8),
        keys.whole("num_experts_per_tok", "feed_forward.top_k", 2),
        keys.number("router_aux_loss_coef", "feed_forward.balance", 0.001),
        keys.number("router_jitter_noise", "feed_forward.jitter", 0.0),
        keys.implied(("feed_forward.kind", "experts")),
    ),
    parts=(
        *MISTRAL.parts,
        *parts_from(
            {
                "{}.feed_forward.router": f"{LAYER}.block_sparse_moe.gate",
                "{}.feed_forward: gate up down": f"{LAYER}.block_sparse_moe.experts.[]: w1 w3 w2",
            }
        ),
    ),
    defaults={"num_key_value_heads": 8, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    aliases={"num_local_experts": "num_experts"},
)


def _read_dense(reading: keys.Reading) -> keys.Pairs:
    file = reading.file
    dense = file.wholes("mlp_only_layers")
    if dense != list(range(len(dense))):
        raise file.refusal("mlp_only_layers", dense, "only the first layers may be without experts")
    every, width = file.whole("decoder_sparse_step", 1), file.whole("intermediate_size")
    yield "feed_forward.dense_width", width if dense or every > 1 else None
    yield "feed_forward.first_dense", len(dense)


_EXPERTS = (
    keys.constant_key(
        "intermediate_size",
        lambda config: config.feed_forward.dense_width or config.feed_forward.width,
    ),
    keys.whole("moe_intermediate_size", "feed_forward.width"),
    keys.whole("num_experts", "feed_forward.count"),
    keys.whole("num_experts_per_tok", "feed_forward.top_k"),
    keys.flag("norm_topk_prob", "feed_forward.normalise", False),
    keys.whole("decoder_sparse_step", "feed_forward.every", 1),
    keys.constant_key(
        "mlp_only_layers", lambda config: list(range(config.feed_forward.first_dense)), _read_dense
    ),
    keys.number("router_aux_loss_coef", "feed_forward.balance", 0.001),
    keys.implied(("feed_forward.kind", "experts")),
)
_EXPERT_PARTS = parts_from(
    {
        "{}.feed_forward.router": f"{LAYER}.mlp.gate",
        "{}.feed_forward: gate up down": f"{LAYER}.mlp.experts.[]: gate_proj up_proj down_proj",
        "{}.feed_forward.shared: gate up down": (
            f"{LAYER}.mlp.shared_expert: gate_proj up_proj down_proj"
        ),
        "{}.feed_forward.shared_gate": f"{LAYER}.mlp.shared_expert_gate",
    }
)
QWEN2_MOE = replace(
    QWEN2,
    name="qwen2_moe",
    architecture="Qwen2MoeForCausalLM",
    keys=(
        *QWEN2.keys,
        *_EXPERTS,
        keys.whole("shared_expert_intermediate_size", "feed_forward.shared_width", 5632),
        keys.expected(qkv_bias=True, write=True),
        keys.implied(("feed_forward.shared_gate", True)),
    ),
    parts=(*QWEN2.parts, *_EXPERT_PARTS),
    defaults={
        "sliding_window": 4096,
        "num_key_value_heads": 16,
        "moe_intermediate_size": 1408,
        "num_experts": 60,
        "num_experts_per_tok": 4,
    },
)
QWEN3_MOE = replace(
    QWEN3,
    name="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    keys=(*QWEN3.keys, *_EXPERTS),
    parts=(*QWEN3.parts, *_EXPERT_PARTS),
    defaults={"num_key_value_heads": 4, "moe_intermediate_size": 768, "num_experts_per_tok": 8},
    aliases={"num_experts": "num_local_experts"},
)
