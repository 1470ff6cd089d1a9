"""Presets are the published configurations, and transformers' classes of these have their size.

The values are those of the config.json released with the weights, entered by hand, not fetched.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles
from llmcurate.base.settings import from_dict, unflatten
from train.hf.export import config_json
from train.hf.families import FAMILIES, family_of
from train.lab.presets.encoders import PRESETS as ENCODERS
from train.lab.presets.sequences import PRESETS as SEQUENCES
from train.measure.accounting import parameters
from train.model.config import ModelConfig
from train.model.presets import PRESETS, preset

transformers = pytest.importorskip("transformers")
ENDS = Roles(begin=0, ends=(0,))


def gpt2(layers, width, heads):
    return {
        "model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads,
        "n_positions": 1024, "vocab_size": 50257, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1,
    }  # fmt: skip


def llama(layers, width, heads, mlp, **more):
    return {
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "intermediate_size": mlp, "hidden_act": "silu",
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "vocab_size": 32000,
        "tie_word_embeddings": False,
    } | more  # fmt: skip


def llama2(*shape, **more):
    return llama(*shape, max_position_embeddings=4096, **more)


def llama3(*shape, **more):
    return llama(
        *shape,
        **{"num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0,
           "max_position_embeddings": 8192} | more,
    )  # fmt: skip


def llama31(*shape, factor=8.0, **more):
    scaling = {
        "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3",
    }  # fmt: skip
    return llama3(*shape, max_position_embeddings=131072, rope_scaling=scaling, **more)


def qwen25(layers, width, heads, kv_heads, mlp, **more):
    return {
        "model_type": "qwen2", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": mlp,
        "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0, "tie_word_embeddings": False, "use_sliding_window": False,
        "sliding_window": 131072, "max_window_layers": layers, "vocab_size": 152064,
    } | more  # fmt: skip


def neox(layers, width, heads, mlp, **more):
    return {
        "model_type": "gpt_neox", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "intermediate_size": mlp, "hidden_act": "gelu",
        "max_position_embeddings": 2048, "layer_norm_eps": 1e-5, "rotary_pct": 0.25,
        "rotary_emb_base": 10000, "use_parallel_residual": True, "tie_word_embeddings": False,
        "vocab_size": 50304,
    } | more  # fmt: skip


def bloom(layers, width, heads):
    return {
        "model_type": "bloom", "n_layer": layers, "n_embed": width, "num_attention_heads": heads,
        "layer_norm_epsilon": 1e-5, "vocab_size": 250880, "seq_length": 2048,
        "apply_residual_connection_post_layernorm": False,
    }  # fmt: skip


def opt(layers, width, heads, mlp, **more):
    return {
        "model_type": "opt", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "ffn_dim": mlp, "activation_function": "relu",
        "max_position_embeddings": 2048, "do_layer_norm_before": True, "dropout": 0.1,
        "word_embed_proj_dim": width, "vocab_size": 50272,
    } | more  # fmt: skip


def olmo(layers, width, heads, mlp, tied):
    return llama(
        layers, width, heads, mlp, model_type="olmo", vocab_size=50304, tie_word_embeddings=tied,
        clip_qkv=None, rope_theta=10000.0, num_key_value_heads=heads, rms_norm_eps=None,
    )  # fmt: skip


SMALL = {"vocab_size": 151936, "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
LLAMA1 = {"rms_norm_eps": 1e-6}
MIXTRAL = {
    "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.02, "rope_theta": 1000000.0, "sliding_window": None,
}  # fmt: skip
YARN = {
    "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
    "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip


def deepseek(version, layers, width, heads, mlp, moe, experts, shared, top, **more):
    return {
        "model_type": f"deepseek_v{version}", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "num_key_value_heads": heads, "intermediate_size": mlp,
        "moe_intermediate_size": moe, "n_routed_experts": experts, "n_shared_experts": shared,
        "num_experts_per_tok": top, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 163840,
        "rms_norm_eps": 1e-6, "rope_theta": 10000, "rope_scaling": YARN, "vocab_size": 102400,
        "tie_word_embeddings": False, "aux_loss_alpha": 0.001, "seq_aux": True,
        "norm_topk_prob": False, "scoring_func": "softmax", "topk_method": "group_limited_greedy",
    } | more  # fmt: skip


def gemma(layers, width, heads, kv_heads, mlp, **more):
    return {
        "model_type": "gemma", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 256,
        "intermediate_size": mlp, "hidden_act": "gelu_pytorch_tanh", "vocab_size": 256000,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    } | more  # fmt: skip


def gemma2(*shape, **more):
    return gemma(
        *shape,
        **{"model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh",
           "query_pre_attn_scalar": 256, "sliding_window": 4096,
           "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0} | more,
    )  # fmt: skip


def falcon(layers, width, heads, **more):
    return {
        "model_type": "falcon", "num_hidden_layers": layers, "hidden_size": width,
        "num_attention_heads": heads, "vocab_size": 65024, "alibi": False, "bias": False,
        "parallel_attn": True, "layer_norm_epsilon": 1e-5,
    } | more  # fmt: skip


def mpt(layers, width, heads, context):
    return {
        "model_type": "mpt", "n_layers": layers, "d_model": width, "n_heads": heads,
        "max_seq_len": context, "expansion_ratio": 4, "vocab_size": 50432, "no_bias": True,
        "attn_config": {"alibi": True},
    }  # fmt: skip


SMOL = {
    "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    "rope_theta": 100000,
}  # fmt: skip
WIDE = {"new_decoder_architecture": True, "num_kv_heads": 8}


# What decides the model in the config.json that the authors released, from the repositories on the
# Hugging Face hub of openai-community, huggyllama, meta-llama, mistralai, Qwen, EleutherAI,
# bigscience, facebook, allenai, 01-ai, deepseek-ai, google, tiiuae, mosaicml, HuggingFaceTB,
# openlm-research and LLM360.
PUBLISHED = {
    "gpt2": gpt2(12, 768, 12),
    "gpt2-medium": gpt2(24, 1024, 16),
    "gpt2-large": gpt2(36, 1280, 20),
    "gpt2-xl": gpt2(48, 1600, 25),
    "llama-7b": llama(32, 4096, 32, 11008, **LLAMA1),
    "llama-13b": llama(40, 5120, 40, 13824, **LLAMA1),
    "llama-33b": llama(60, 6656, 52, 17920, **LLAMA1),
    "llama-65b": llama(80, 8192, 64, 22016, **LLAMA1),
    "llama2-7b": llama2(32, 4096, 32, 11008, num_key_value_heads=32),
    "llama2-13b": llama2(40, 5120, 40, 13824, num_key_value_heads=40),
    "llama2-70b": llama2(80, 8192, 64, 28672, num_key_value_heads=8),
    "llama3-8b": llama3(32, 4096, 32, 14336),
    "llama3-70b": llama3(80, 8192, 64, 28672),
    "llama3.1-8b": llama31(32, 4096, 32, 14336),
    "llama3.1-70b": llama31(80, 8192, 64, 28672),
    "llama3.1-405b": llama31(126, 16384, 128, 53248),
    "llama3.2-1b": llama31(
        16, 2048, 32, 8192, factor=32.0, tie_word_embeddings=True, head_dim=64
    ),
    "llama3.2-3b": llama31(
        28, 3072, 24, 8192, factor=32.0, tie_word_embeddings=True, head_dim=128
    ),
    "mistral-7b": llama(
        32, 4096, 32, 14336, model_type="mistral", num_key_value_heads=8,
        max_position_embeddings=32768, sliding_window=4096, rope_theta=10000.0,
    ),
    "yi-34b": llama(
        60, 7168, 56, 20480, num_key_value_heads=8, max_position_embeddings=4096,
        rope_theta=5000000.0, vocab_size=64000,
    ),
    "deepseek-7b": llama(
        30, 4096, 32, 11008, max_position_embeddings=4096, vocab_size=102400, **LLAMA1
    ),
    "deepseek-67b": llama(
        95, 8192, 64, 22016, num_key_value_heads=8, max_position_embeddings=4096,
        vocab_size=102400, **LLAMA1,
    ),
    "qwen2.5-0.5b": qwen25(24, 896, 14, 2, 4864, max_position_embeddings=32768, **SMALL),
    "qwen2.5-1.5b": qwen25(28, 1536, 12, 2, 8960, **SMALL),
    "qwen2.5-3b": qwen25(36, 2048, 16, 2, 11008, max_position_embeddings=32768, **SMALL),
    "qwen2.5-7b": qwen25(28, 3584, 28, 4, 18944, rms_norm_eps=1e-6),
    "qwen2.5-14b": qwen25(48, 5120, 40, 8, 13824),
    "qwen2.5-32b": qwen25(64, 5120, 40, 8, 27648),
    "qwen2.5-72b": qwen25(80, 8192, 64, 8, 29568),
    "mixtral-tiny": llama(
        4, 192, 6, 256, **MIXTRAL, num_key_value_heads=2, vocab_size=4096,
        max_position_embeddings=256, tie_word_embeddings=True,
    ),
    "mixtral-8x7b": llama(
        32, 4096, 32, 14336, **MIXTRAL, num_key_value_heads=8, max_position_embeddings=32768,
    ),
    "mixtral-8x22b": llama(
        56, 6144, 48, 16384, **MIXTRAL, num_key_value_heads=8, max_position_embeddings=65536,
    ),
    "qwen2-moe": {
        "model_type": "qwen2_moe", "num_hidden_layers": 24, "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
        "hidden_act": "silu", "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "tie_word_embeddings": False, "use_sliding_window": False,
        "sliding_window": 32768, "max_window_layers": 21, "vocab_size": 151936,
        "decoder_sparse_step": 1, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
        "norm_topk_prob": False, "router_aux_loss_coef": 0.001,
    },
    "deepseek-v2-lite": deepseek(
        2, 27, 2048, 16, 10944, 1408, 64, 2, 6, q_lora_rank=None, n_group=1, topk_group=1,
        topk_method="greedy", routed_scaling_factor=1.0,
        rope_scaling=YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    ),
    "deepseek-v2": deepseek(
        2, 60, 5120, 128, 12288, 1536, 160, 2, 6, n_group=8, topk_group=3,
        routed_scaling_factor=16.0,
    ),
    "deepseek-v3": deepseek(
        3, 61, 7168, 128, 18432, 2048, 256, 1, 8, n_group=8, topk_group=4, vocab_size=129280,
        routed_scaling_factor=2.5, first_k_dense_replace=3, norm_topk_prob=True,
        scoring_func="sigmoid", topk_method="noaux_tc", num_nextn_predict_layers=1,
    ),
    "gptj-6b": {
        "model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "n_positions": 2048,
        "rotary_dim": 64, "vocab_size": 50400, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "n_inner": None,
    },
    "gpt-neox-20b": neox(44, 6144, 64, 24576, hidden_act="gelu_fast", vocab_size=50432),
    "pythia-160m": neox(12, 768, 12, 3072),
    "pythia-1.4b": neox(24, 2048, 16, 8192),
    "bloom-560m": bloom(24, 1024, 16),
    "bloom-1b1": bloom(24, 1536, 16),
    "bloom-1b7": bloom(24, 2048, 16),
    "bloom-3b": bloom(30, 2560, 32),
    "bloom-7b1": bloom(30, 4096, 32),
    "bloom-176b": bloom(70, 14336, 112),
    "opt-125m": opt(12, 768, 12, 3072),
    "opt-350m": opt(
        24, 1024, 16, 4096, do_layer_norm_before=False, word_embed_proj_dim=512
    ),
    "opt-1.3b": opt(24, 2048, 32, 8192),
    "opt-2.7b": opt(32, 2560, 32, 10240),
    "opt-6.7b": opt(32, 4096, 32, 16384),
    "opt-13b": opt(40, 5120, 40, 20480),
    "opt-30b": opt(48, 7168, 56, 28672),
    "opt-66b": opt(64, 9216, 72, 36864),
    "olmo-1b": olmo(16, 2048, 16, 8192, True),
    "olmo-7b": olmo(32, 4096, 32, 11008, False),
    "gemma-2b": gemma(18, 2048, 8, 1, 16384),
    "gemma-7b": gemma(28, 3072, 16, 16, 24576),
    "gemma2-2b": gemma2(26, 2304, 8, 4, 9216),
    "gemma2-9b": gemma2(42, 3584, 16, 8, 14336),
    "gemma2-27b": gemma2(46, 4608, 32, 16, 36864, head_dim=128, query_pre_attn_scalar=144),
    "falcon-7b": falcon(32, 4544, 71, multi_query=True, new_decoder_architecture=False),
    "falcon-40b": falcon(60, 8192, 128, **WIDE),
    "falcon-180b": falcon(80, 14848, 232, **WIDE),
    "mpt-7b": mpt(32, 4096, 32, 2048),
    "mpt-30b": mpt(48, 7168, 64, 8192),
    "smollm2-135m": llama(30, 576, 9, 1536, **SMOL, num_key_value_heads=3),
    "smollm2-360m": llama(32, 960, 15, 2560, **SMOL, num_key_value_heads=5),
    "smollm2-1.7b": llama(24, 2048, 32, 8192, **SMOL | {"rope_theta": 130000}),
    "openllama-3b": llama(26, 3200, 32, 8640, **LLAMA1),
    "openllama-7b": llama(32, 4096, 32, 11008, **LLAMA1),
    "openllama-13b": llama(40, 5120, 40, 13824, **LLAMA1),
    "amber-7b": llama(32, 4096, 32, 11008, **LLAMA1),
}  # fmt: skip
OURS = ("tiny", "30m", "124m", "350m", "1b")


def read_config(vocab: int, fields: dict) -> ModelConfig:
    return from_dict(ModelConfig, unflatten(fields | {"vocab": vocab}), "config.json")


def size_of_class(values: dict) -> int:
    """Parameters of transformers' class of that config.json; allocates nothing."""
    kind = values["model_type"]
    config = transformers.AutoConfig.for_model(
        **{key: value for key, value in values.items() if value is not None or "lora" in key}
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert type(model).__name__ == FAMILIES[kind].architecture
    biases = (tensor for name, tensor in model.named_buffers() if "correction_bias" in name)
    return sum(weight.numel() for weight in (*model.parameters(), *biases))


def few_layers(values: dict) -> tuple[int, dict]:
    """As many as have one of each kind."""
    few = values.get("first_k_dense_replace", 1) + 1
    names = ("n_layer", "n_layers", "num_hidden_layers")
    name = next((name for name in names if name in values), names[-1])
    windows = {"max_window_layers": few} if "max_window_layers" in values else {}
    return few, values | {name: few} | windows


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_is_the_published_configuration_and_its_class_has_its_size(name):
    values = PUBLISHED[name]
    family = FAMILIES[values["model_type"]]
    settings = family.settings(values, "config.json")
    assert read_config(values["vocab_size"], family.read(settings, None).ours) == preset(name)
    few, values = few_layers(values)
    assert size_of_class(values) == parameters(dataclasses.replace(preset(name), layers=few))


@pytest.mark.parametrize("name", [*PUBLISHED, *OURS])
def test_the_config_json_of_a_preset_comes_back_and_has_its_size(name):
    few, _ = few_layers(PUBLISHED.get(name, {}))
    config = dataclasses.replace(preset(name), layers=few)
    family = family_of(config)
    kind = PUBLISHED.get(name, {}).get("model_type", "llama")
    # LLaMA's class computes Gemma 1, whose scales of norms and embedding are in the weights here.
    assert family.name == ("llama" if kind == "gemma" else kind)
    values = dict(config_json(config, family, ENDS))
    settings = family.settings(values, "config.json")
    assert read_config(config.vocab, family.read(settings, None).ours) == config
    assert size_of_class(values) == parameters(config)


def test_presets_without_a_class_or_released_configuration_are_named():
    """Qwen's own config.json is of code of its own; its class here is Qwen2."""
    others = {
        "palm-8b", "palm-62b", "palm-540b", "opt-175b", "gpt1", "qwen-7b", "qwen-14b", "qwen-72b",
        "deepseek-tiny", "gpt-neo-125m", "gpt-neo-1.3b", "gpt-neo-2.7b", "lamda-137b", "olmo-65b",
        "crystalcoder-7b", "deepseek-moe-16b", "dbrx", "grok-1", "minicpm-moe-8x2b",
    }  # fmt: skip
    decoders = set(PRESETS) - set(ENCODERS) - set(SEQUENCES) - set(PUBLISHED) - set(OURS)
    tables = {name for name in PRESETS if name.startswith(("gpt3", "gopher", "chinchilla"))}
    assert decoders == others | tables
    assert family_of(preset("qwen-7b")).name == "qwen2"
    assert family_of(preset("gpt3-175b")).name == "gpt2"
    assert family_of(preset("deepseek-tiny").trunk).name == "deepseek_v3"
    with pytest.raises(LlmcurateError, match=r"nearest is llama, but for norm\.kind layer_no_bias"):
        family_of(preset("palm-8b"))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "gpt-neo-125m",
            {"model_type": "gpt_neo", "num_layers": 12, "hidden_size": 768, "num_heads": 12}
            | {"attention_types": [[["global", "local"], 6]]},
        ),
        (
            "dbrx",
            {"model_type": "dbrx", "n_layers": 2, "d_model": 6144, "n_heads": 48}
            | {"vocab_size": 100352, "max_seq_len": 32768}
            | {"attn_config": {"kv_n_heads": 8, "rope_theta": 5e5}}
            | {"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
        ),
    ],
)
def test_a_class_that_we_cannot_write_has_the_size_of_the_preset(name, values):
    layers = values.get("num_layers", values.get("n_layers"))
    config = transformers.AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    built = parameters(dataclasses.replace(preset(name), layers=layers))
    assert sum(weight.numel() for weight in model.parameters()) == built


LEAST = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
GPT = {"vocab_size": 100, "n_embd": 64, "n_layer": 3, "n_head": 4}
LEFT_OUT = {
    **{name: LEAST | {"intermediate_size": 96} for name in ("llama", "olmo", "gpt_neox")},
    **{
        name: LEAST | {"intermediate_size": 96, "num_attention_heads": 8}
        for name in ("mistral", "ministral", "mixtral")
    },
    **{
        name: LEAST | {"intermediate_size": 96, "num_attention_heads": 32, "hidden_size": 256}
        for name in ("qwen2", "qwen3")
    },
    "deepseek_v3": LEAST | {"num_key_value_heads": 4, "num_hidden_layers": 4},
    "deepseek_v2": LEAST
    | {"num_key_value_heads": 4, "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    "qwen2_moe": LEAST | {"intermediate_size": 1408, "num_attention_heads": 16, "hidden_size": 128},
    "gpt2": GPT,
    "gptj": GPT | {"rotary_dim": 8},
    "bloom": {"vocab_size": 100, "hidden_size": 64, "n_layer": 3, "n_head": 4},
    "opt": LEAST | {"ffn_dim": 128},
}
# Not the model: how it is kept and run, and what layer_types says. BLOOM's class has no length.
ASIDE = {
    "architectures", "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "attn_pdrop",
    "attention_dropout", "transformers_version", "seq_length", "_name_or_path",
    "max_window_layers", "num_nextn_predict_layers",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_config_json_leaves_out_is_read_as_transformers_does(name):
    family, values = FAMILIES[name], LEFT_OUT[name]
    read = family.read(family.settings(values, "config.json"), None).ours
    written = dict(config_json(read_config(100, read), family, Roles()))
    theirs, ours = (
        transformers.AutoConfig.for_model(**{"model_type": name, **config}).to_dict()
        for config in (values, {k: v for k, v in written.items() if k != "architectures"})
    )
    differ = {
        key: (theirs[key], ours.get(key))
        for key in theirs.keys() - ASIDE
        if theirs[key] is not None and theirs[key] != ours.get(key)
    }
    assert not differ
