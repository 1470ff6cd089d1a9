"""Families after GPT: GPT-2, GPT-J, GPT-NeoX, BLOOM, OPT."""

from __future__ import annotations

from typing import Any

from train.hf import rope
from train.hf.family import (
    ACTIVATIONS,
    COMMON,
    PLAIN,
    QKV,
    Family,
    activation,
    by_head,
    conv1d,
    conv1d_qkv,
    heads_of,
    interleaved,
    learned,
    listed,
    of_decoder,
)
from train.hf.settings import Settings
from train.model.config import ModelConfig

_ALLOWS = COMMON | {"norm.kind": ("layer",), "bias": ("all",), "feed_forward.activation": PLAIN}
BIASED = {"attention.bias": "all", "feed_forward.bias": True}


def _heads(settings: Settings, hidden: str, heads: str, layers: str) -> dict[str, Any]:
    shape = heads_of(settings, hidden, heads)
    return shape | {"layers": settings.whole(layers), "norm.kind": "layer"}


# GPT-2 (Radford et al. 2019)


def _write_gpt2(config: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": config.context,
        "n_embd": config.hidden,
        "n_layer": config.layers,
        "n_head": config.attention.heads,
        "n_inner": config.feed_forward.width,
        "activation_function": activation(config),
        "layer_norm_epsilon": config.norm.eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": 0.0,
    }


def _read_gpt2(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("scale_attn_weights", True, True)
    settings.expect("scale_attn_by_inverse_layer_idx", False, False)
    settings.expect("add_cross_attention", False, False)
    heads = _heads(settings, "n_embd", "n_head", "n_layer")
    return heads | {
        **BIASED,
        "feed_forward.activation": settings.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        "feed_forward.width": settings.whole("n_inner", 4 * heads["hidden"]),
        "norm.eps": settings.number("layer_norm_epsilon", 1e-5),
        "position.kind": "learned",
        "context": learned(settings, "n_positions", 1024, context),
        "dropout": settings.number("resid_pdrop", 0.1),
        "head.tied": settings.flag("tie_word_embeddings", True),
    }


GPT2 = Family(
    name="gpt2",
    architecture="GPT2LMHeadModel",
    tasks=of_decoder("GPT2", of_words="classifier"),
    allows=_ALLOWS | {"position.kind": ("learned",)},
    write=_write_gpt2,
    read=_read_gpt2,
    parts=listed(
        {
            "embedding": "transformer.wte",
            "stack.positions": "transformer.wpe",
            "{}.attention_norm": "transformer.h.{}.ln_1",
            QKV: ("transformer.h.{}.attn.c_attn", conv1d_qkv),
            "{}.attention.out": ("transformer.h.{}.attn.c_proj", conv1d),
            "{}.feed_forward_norm": "transformer.h.{}.ln_2",
            "{}.feed_forward.up": ("transformer.h.{}.mlp.c_fc", conv1d),
            "{}.feed_forward.down": ("transformer.h.{}.mlp.c_proj", conv1d),
            "stack.norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    prefix="transformer.",
    aliases={
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
    },
)


# GPT-J (Wang and Komatsuzaki 2021)


def _write_gptj(config: ModelConfig) -> dict[str, Any]:
    return _write_gpt2(config) | {"rotary_dim": config.rotated}


def _read_gptj(settings: Settings, context: int | None) -> dict[str, Any]:
    heads = _heads(settings, "n_embd", "n_head", "n_layer")
    rotated = settings.whole("rotary_dim", 64)
    return heads | {
        "feed_forward.bias": True,
        "head.bias": True,
        "feed_forward.activation": settings.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        "feed_forward.width": settings.whole("n_inner", 4 * heads["hidden"]),
        "norm.eps": settings.number("layer_norm_epsilon", 1e-5),
        "residual.kind": "parallel",
        "position.dim": None if rotated == heads["attention.head_dim"] else rotated,
        "context": context or settings.whole("n_positions", 2048),
        "dropout": settings.number("resid_pdrop", 0.0),
        "head.tied": settings.flag("tie_word_embeddings", False),
    }


GPTJ = Family(
    name="gptj",
    architecture="GPTJForCausalLM",
    allows=_ALLOWS
    | {
        "bias": ("feed-forward",),
        "head.bias": (True,),
        "residual.kind": ("parallel",),
        "position.kind": ("rope",),
        "position.dim": ("head_dim", "a part of head_dim"),
    },
    write=_write_gptj,
    read=_read_gptj,
    parts=listed(
        {
            "embedding": "transformer.wte",
            "{}.attention_norm": "transformer.h.{}.ln_1",
            "{}.attention.query": ("transformer.h.{}.attn.q_proj", interleaved),
            "{}.attention.key": ("transformer.h.{}.attn.k_proj", interleaved),
            "{}.attention.value": "transformer.h.{}.attn.v_proj",
            "{}.attention.out": "transformer.h.{}.attn.out_proj",
            "{}.feed_forward.up": "transformer.h.{}.mlp.fc_in",
            "{}.feed_forward.down": "transformer.h.{}.mlp.fc_out",
            "stack.norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    prefix="transformer.",
    aliases=GPT2.aliases,
)


# GPT-NeoX (Black et al. 2022), and Pythia


def _write_neox(config: ModelConfig) -> dict[str, Any]:
    values = rope.written(config)
    values["rotary_emb_base"] = values["rope_theta"]
    return values | {
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.attention.heads,
        "intermediate_size": config.feed_forward.width,
        "hidden_act": activation(config),
        "max_position_embeddings": config.context,
        "layer_norm_eps": config.norm.eps,
        "use_parallel_residual": config.residual.kind == "parallel",
        "attention_bias": config.attention.bias == "all",
        "rotary_pct": _share(config.rotated, config.attention.head_dim),
        "hidden_dropout": config.dropout,
        "attention_dropout": 0.0,
    }


def _share(rotated: int, size: int) -> float:
    """A fraction of ``size`` that rounds down to ``rotated`` again."""
    share = rotated / size
    return share if int(size * share) == rotated else (rotated + 0.5) / size


def _read_neox(settings: Settings, context: int | None) -> dict[str, Any]:
    heads = _heads(settings, "hidden_size", "num_attention_heads", "num_hidden_layers")
    length = context or settings.whole("max_position_embeddings", 2048)
    new = settings.sub("rope_parameters")
    share = settings.number("rotary_pct", 0.25)
    share = new.number("partial_rotary_factor", share) if new else share
    rotated = int(heads["attention.head_dim"] * share)
    parallel = settings.flag("use_parallel_residual", True)
    return heads | {
        "attention.bias": "all" if settings.flag("attention_bias", True) else "none",
        "feed_forward.bias": True,
        "feed_forward.activation": settings.one_of("hidden_act", ACTIVATIONS, "gelu"),
        "feed_forward.width": settings.whole("intermediate_size"),
        "norm.eps": settings.number("layer_norm_eps", 1e-5),
        **({"residual.kind": "parallel", "residual.norms": 2} if parallel else {}),
        "position.dim": None if rotated == heads["attention.head_dim"] else rotated,
        "context": length,
        "dropout": settings.number("hidden_dropout", 0.0),
        "head.tied": settings.flag("tie_word_embeddings", False),
        **rope.read(settings, length, theta="rotary_emb_base"),
    }


_NEOX = _ALLOWS | {
    "bias": ("all", "feed-forward"),
    "position.kind": ("rope",),
    "position.dim": ("head_dim", "a part of head_dim"),
    "position.scaling": (False, True),
    "position.theta": ("10000", "other"),
}
GPT_NEOX = Family(
    name="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    allows=_NEOX | {"residual.kind": ("parallel", "serial"), "residual.norms": (2, 1)},
    write=_write_neox,
    read=_read_neox,
    parts=listed(
        {
            "embedding": "gpt_neox.embed_in",
            "{}.attention_norm": "gpt_neox.layers.{}.input_layernorm",
            "{}.feed_forward_norm": "gpt_neox.layers.{}.post_attention_layernorm",
            QKV: ("gpt_neox.layers.{}.attention.query_key_value", by_head),
            "{}.attention.out": "gpt_neox.layers.{}.attention.dense",
            "{}.feed_forward.up": "gpt_neox.layers.{}.mlp.dense_h_to_4h",
            "{}.feed_forward.down": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
            # transformers 5 calls the head lm_head, and reads this name as older versions do.
            "stack.norm": "gpt_neox.final_layer_norm",
            "head": "embed_out",
        }
    ),
    prefix="gpt_neox.",
)


# BLOOM (BigScience 2022)


def _write_bloom(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "n_layer": config.layers,
        "n_head": config.attention.heads,
        "layer_norm_epsilon": config.norm.eps,
        "seq_length": config.context,
        "hidden_dropout": config.dropout,
        "attention_dropout": 0.0,
    }


def _read_bloom(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("apply_residual_connection_post_layernorm", False, False)
    heads = _heads(settings, "hidden_size", "n_head", "n_layer")
    return heads | {
        **BIASED,
        "feed_forward.activation": "gelu_tanh",
        "feed_forward.width": 4 * heads["hidden"],
        "norm.eps": settings.number("layer_norm_epsilon", 1e-5),
        "embedding.norm": True,
        "position.kind": "alibi",
        "context": context or settings.whole("seq_length", 2048),
        "dropout": settings.number("hidden_dropout", 0.0),
        "head.tied": settings.flag("tie_word_embeddings", True),
    }


BLOOM = Family(
    name="bloom",
    architecture="BloomForCausalLM",
    allows=_ALLOWS
    | {
        "embedding.norm": (True,),
        "feed_forward.activation": ("gelu_tanh",),
        "feed_forward.width": ("4 x hidden",),
        "position.kind": ("alibi",),
    },
    write=_write_bloom,
    read=_read_bloom,
    parts=listed(
        {
            "embedding": "transformer.word_embeddings",
            "embedding.norm": "transformer.word_embeddings_layernorm",
            "{}.attention_norm": "transformer.h.{}.input_layernorm",
            QKV: ("transformer.h.{}.self_attention.query_key_value", by_head),
            "{}.attention.out": "transformer.h.{}.self_attention.dense",
            "{}.feed_forward_norm": "transformer.h.{}.post_attention_layernorm",
            "{}.feed_forward.up": "transformer.h.{}.mlp.dense_h_to_4h",
            "{}.feed_forward.down": "transformer.h.{}.mlp.dense_4h_to_h",
            "stack.norm": "transformer.ln_f",
            "head": "lm_head",
        }
    ),
    prefix="transformer.",
    aliases={
        "hidden_size": "n_embed",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
    },
)


# OPT (Zhang et al. 2022)


def _write_opt(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "word_embed_proj_dim": config.embedded,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.attention.heads,
        "ffn_dim": config.feed_forward.width,
        "activation_function": activation(config),
        "max_position_embeddings": config.context,
        "do_layer_norm_before": config.norm.place == "pre",
        "enable_bias": config.attention.bias == "all",
        "layer_norm_elementwise_affine": config.norm.kind == "layer",
        "dropout": config.dropout,
        "attention_dropout": 0.0,
    }


def _read_opt(settings: Settings, context: int | None) -> dict[str, Any]:
    settings.expect("_remove_final_layer_norm", False, False)
    heads = _heads(settings, "hidden_size", "num_attention_heads", "num_hidden_layers")
    size = settings.whole("word_embed_proj_dim", heads["hidden"])
    if size != heads["hidden"]:
        settings.expect("tie_word_embeddings", True, True)
        heads |= {"embedding.size": size, "embedding.bias": False, "embedding.positions": "after"}
    affine = settings.flag("layer_norm_elementwise_affine", True)
    return heads | {
        "norm.kind": "layer" if affine else "layer_plain",
        "norm.place": "pre" if settings.flag("do_layer_norm_before", True) else "post",
        **(BIASED if settings.flag("enable_bias", True) else {}),
        "feed_forward.activation": settings.one_of("activation_function", ACTIVATIONS, "relu"),
        "feed_forward.width": settings.whole("ffn_dim"),
        "position.kind": "learned",
        "position.offset": 2,
        "context": learned(settings, "max_position_embeddings", 2048, context),
        "dropout": settings.number("dropout", 0.1),
        "head.tied": settings.flag("tie_word_embeddings", True),
    }


OPT = Family(
    name="opt",
    architecture="OPTForCausalLM",
    allows=_ALLOWS
    | {
        "norm.kind": ("layer", "layer_plain"),
        "norm.eps": ("1e-5",),
        "norm.place": ("pre", "post"),
        "bias": ("all", "none"),
        "position.kind": ("learned",),
        "position.offset": (2,),
        "embedding.size": ("hidden", "other than hidden, as OPT"),
    },
    write=_write_opt,
    read=_read_opt,
    parts=listed(
        {
            "embedding": "model.decoder.embed_tokens",
            "embedding.out": "model.decoder.project_in",
            "head.transform": "model.decoder.project_out",
            "stack.positions": "model.decoder.embed_positions",
            "{}.attention.query": "model.decoder.layers.{}.self_attn.q_proj",
            "{}.attention.key": "model.decoder.layers.{}.self_attn.k_proj",
            "{}.attention.value": "model.decoder.layers.{}.self_attn.v_proj",
            "{}.attention.out": "model.decoder.layers.{}.self_attn.out_proj",
            "{}.attention_norm": "model.decoder.layers.{}.self_attn_layer_norm",
            "{}.feed_forward.up": "model.decoder.layers.{}.fc1",
            "{}.feed_forward.down": "model.decoder.layers.{}.fc2",
            "{}.feed_forward_norm": "model.decoder.layers.{}.final_layer_norm",
            "stack.norm": "model.decoder.final_layer_norm",
            "head": "lm_head",
        }
    ),
    prefix="model.",
)
